"""The bars of the ceilings part, on figures made up for it."""

from typing import Any

from benchmarks.ceilings import judge


def document(seconds: float, **values: float) -> dict[str, Any]:
    rows = [{"name": name.replace("_", " "), "unit": "B/s", "value": value} for name, value in values.items()]
    return {"seconds": seconds, "ceilings": rows}


def test_figures_that_agree_pass_all_three_bars() -> None:
    bars = judge(
        [document(50, memory_read=4e12), document(55, memory_read=4.1e12)], {"memory read": 3.95e12}, "cuda"
    )
    assert [bar.passed for bar in bars] == [True, True, True]


def test_what_takes_too_long_or_is_apart_is_named() -> None:
    documents = [document(50, memory_read=4e12), document(61, memory_read=4.2e12)]
    bars = judge(documents, {"memory read": 4.2e12}, "cuda")
    assert [bar.passed for bar in bars] == [False, False, False]
    assert "memory read: 5.0%" in bars[1].found


def test_hosts_share_does_not_count_between_runs() -> None:
    rows = {"host_to_device,_pageable": 4e9}
    documents = [
        document(50, memory_read=4e12, **rows),
        document(50, memory_read=4e12, **dict.fromkeys(rows, 8000000000.0)),
    ]
    assert [bar.passed for bar in judge(documents, {}, "cuda")] == [True, True]
