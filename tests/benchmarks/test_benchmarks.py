"""The parts of the benchmarks that need no device: reading ncu's table, judging bars, writing the page."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ncu, rejection, selfcheck, side_by_side, table

# As `ncu --csv --page raw --print-units base` prints it, shortened to the columns that are read.
NCU = """==PROF== Connected to process 71 (/usr/bin/python3.12)
==PROF== Profiling "vectorized_elementwise_kernel": 0%....50%....100% - 1 pass
{"events_us": 1}
"ID","Process ID","Kernel Name","gpu__time_duration.sum","smsp__cycles_elapsed.avg.per_second"
"","","","ns","hz"
"0","71","split","5,000","1,980,000,000"
"1","71","add","1,000","1,970,000,000"
"2","71","split","5,400","1,980,000,000"
"3","71","add","1,200","1,975,000,000"
"""


def test_kernels_of_one_call_are_added_up() -> None:
    found = ncu.parse(NCU, 2)
    assert found["us"] == pytest.approx(6.3)
    assert (found["least_us"], found["most_us"]) == (6.0, 6.6)
    assert found["mhz"] == pytest.approx(1977.5)
    assert found["kernels"] == ["add", "split"]


@pytest.mark.parametrize("text", [NCU.split('"ID"')[0], NCU + '"4","71","split","5,000","1"\n'])
def test_a_table_that_does_not_fit_the_calls_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no table|5 kernels in 2 calls"):
        ncu.parse(text, 2)


@pytest.mark.parametrize(
    ("events", "mhz", "passed"), [(180.0, 1980.0, True), (184.0, 1980.0, False), (180.0, 1900.0, None)]
)
def test_ncu_and_events_must_agree_at_one_clock(events: float, mhz: float, passed: bool | None) -> None:
    row = {
        "workload": "gemm",
        "compare_us": events,
        "compare_mhz": mhz,
        "ncu_all": {"us": 178.0, "mhz": 1979.0},
    }
    bar = ncu.judge(row, "all")
    assert bar is not None
    assert bar.passed is passed


def rate(what: str, k: int, n: int, workload: str = "mix") -> dict[str, Any]:
    experiment = {"false": "aa", "found": "injected", "reciprocal": "swap"}[what]
    return {
        "experiment": experiment,
        "what": what,
        "workload": workload,
        "k": k,
        "n": n,
        "low": 0.0,
        "high": 1.0,
    }


@pytest.mark.parametrize(
    ("kind", "k", "n", "passed"),
    [
        ("cpu", 5, 100, True),
        ("cpu", 6, 100, False),
        ("cpu", 6, 20, False),
        ("cpu", 0, 99, None),
        ("cuda", 3, 60, True),
        ("cuda", 4, 60, False),
    ],
)
def test_false_verdicts_fail_at_any_n_and_pass_at_the_full_one(
    kind: str, k: int, n: int, passed: bool | None
) -> None:
    assert selfcheck._false_bar(kind, rate("false", k, n)).passed is passed


def test_pooled_rates_decide_where_there_are_several_workloads() -> None:
    rates = [rate("found", 1, 15, "copy"), rate("found", 15, 15, "gemm"), rate("found", 57, 60, "all")]
    record = {"rates": rates, "linearity": [], "half_width": {"gemm": 0.0031}}
    found, width = selfcheck._bars("cuda", record)
    assert found.passed is True
    assert width.passed is False


def test_a_second_run_asks_only_for_what_is_missing(tmp_path: Path) -> None:
    assert selfcheck._missing(tmp_path, 20) == dict.fromkeys(("aa", "injected", "swap", "linearity"), 20)
    done = [("aa", i) for i in range(20)] + [("injected", i) for i in range(8)] + [("swap", 0), ("swap", 1)]
    runs = [{"experiment": name, "group": group} for name, group in done]
    (tmp_path / "results.json").write_text(json.dumps({"runs": runs}))
    assert selfcheck._missing(tmp_path, 20) == {"injected": 12}


def test_ratios_count_as_apart_in_both_directions() -> None:
    assert side_by_side._summary([1.0, 1.03, 1 / 1.03, 1.01]) == {
        "n": 4,
        "apart": 2,
        "worst": pytest.approx(0.03),
    }


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_rejections_are_timed_over_several_families(kind: str) -> None:
    chosen = rejection._chosen(kind)
    assert len({case.name for case in chosen}) == len(chosen) == rejection.CASES
    assert len({case.family for case in chosen}) >= 4


def test_the_page_shows_the_newest_results_and_survives_bars_in_cells(tmp_path: Path) -> None:
    part = {
        "part": "budget",
        "date": "2026-11-15T00:00:00+00:00",
        "commit": None,
        "machine": {"gpus": [], "cpu": "Xeon", "cpus": 2, "kernel": "6.1", "driver": None},
        "versions": {"python": "3.11", "triton": None},
        "complete": False,
        "notes": [],
        "bars": [{"name": "a | b", "wanted": "≤ 60 s", "found": "61 s", "passed": False}],
    }
    for date, found in (("2026-11-14", "59 s"), ("2026-11-15", "61 s")):
        (tmp_path / f"{date}-cpu").mkdir()
        part["bars"][0]["found"] = found  # type: ignore[index]
        (tmp_path / f"{date}-cpu" / "budget.json").write_text(json.dumps(part))
    page = table.text(tmp_path)
    assert "| budget | a \\| b | ≤ 60 s | 61 s | **fail** |" in page
    assert "59 s" not in page
    assert "stopped before its end" in page


def test_the_page_in_the_repository_is_the_one_its_results_give() -> None:
    assert table.README.read_text() == table.text(table.RESULTS)
