"""A check record as text, JUnit and Markdown: whole, escaped, and true to the statuses."""

import io
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from rich.console import Console

from trackside.records.check import CheckRecord
from trackside.report.check_junit import junit
from trackside.report.check_markdown import markdown
from trackside.report.check_text import render

NASTY = "a]]> <b>&\x00\x1b[31m @someone [x](http://evil) | `c` \ud800 <script>\nnext"


def record(*items: dict[str, Any]) -> dict[str, Any]:
    common = {"mode": "baseline", "claim": "faster", "device": "cpu", "baseline": "b.py", "candidate": "c.py"}
    return CheckRecord(
        schema="trackside.check/1",
        run_id="c-1",
        verdict="failed",
        exit_code=1,
        counts={"failed": 1, "holds": 1},
        suite="s.toml",
        items=[common | item for item in items],  # type: ignore[misc]
        machine={"cpu": "EPYC", "gpus": []},
        started="2026-11-18T02:00:00+00:00",
        seconds=3.0,
        version="0",
    ).to_dict()


CHANGE = {"ratio": 1.5, "low": 1.4, "high": 1.6}
EVERY = [
    {"name": "a", "status": "holds", "verdict": "faster", "change": CHANGE},
    {"name": "b", "status": "failed", "verdict": "rejected", "reasons": [NASTY]},
    {"name": "c", "status": "error", "reasons": ["internal: oh"]},
    {"name": "d", "status": "inconclusive", "verdict": "inconclusive", "change": CHANGE},
    {"name": "e", "status": "not-comparable", "mode": "accepted", "candidate": None},
    {"name": "f", "status": "not-run"},
    {"name": "g", "status": "accepted", "mode": "accepted", "candidate": None, "reasons": ["0.1 times"]},
    {
        "name": "h",
        "status": "failed",
        "verdict": "slower",
        "mode": "accepted",
        "change": CHANGE,
        "delta": 0.05,
    },
]


def test_junit_is_valid_xml_with_a_case_for_each_and_right_counts() -> None:
    root = ElementTree.fromstring(junit(record(*EVERY)))
    (suite,) = root
    assert {n: suite.get(n) for n in ("tests", "failures", "errors", "skipped")} == {
        "tests": "8",
        "failures": "2",
        "errors": "1",
        "skipped": "3",
    }
    kinds = {case.get("name"): [child.tag for child in case] for case in suite}
    assert kinds["a"] == ["system-out"]
    assert kinds["b"] == ["failure"]
    assert kinds["c"] == ["error"]
    assert kinds["d"] == kinds["e"] == kinds["f"] == ["skipped"]
    text = suite.find("testcase[@name='b']/failure").text  # type: ignore[union-attr]
    assert text is not None
    assert "a]]> <b>&" in text
    assert "\x1b" not in text


def test_markdown_of_a_hostile_reason_makes_no_markup() -> None:
    text = markdown(record(*EVERY))
    for piece in ("<script", "<b>", "](", "@someone", "`c`", "\x1b", "\x00"):
        assert piece not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(EVERY)
    assert all(row.count("|") == 5 for row in rows)
    text.encode()


@pytest.mark.parametrize("width", [40, 200])
def test_the_terminal_shows_each_status_and_no_control_characters(width: int) -> None:
    out = io.StringIO()
    render(record(*EVERY), Console(file=out, width=width))
    text = out.getvalue()
    for item in EVERY:
        assert item["status"] in text
    assert "\x1b" not in text
    if width == 200:
        assert "faster, 1.500× [1.400, 1.600]; claimed faster" in text
        assert "slower: takes 1.500 [1.400, 1.600] of what was accepted; at most 1.05" in text


def test_a_status_is_not_said_twice_and_the_line_that_ci_shows_says_why() -> None:
    found = record(
        {"name": "b", "status": "failed", "verdict": "rejected", "reasons": ["outputs differ: row 3"]},
        {
            "name": "e",
            "status": "not-comparable",
            "verdict": "not-comparable",
            "reasons": ["nothing was accepted yet"],
        },
        {
            "name": "h",
            "status": "failed",
            "verdict": "slower",
            "mode": "accepted",
            "change": CHANGE,
            "delta": 0.05,
            "reasons": ["pressure: a remark"],
        },
    )
    messages = [case[0].get("message") for case in ElementTree.fromstring(junit(found))[0]]
    assert messages == [
        "failed; rejected: outputs differ: row 3",
        "not-comparable: nothing was accepted yet",
        "failed; slower: takes 1.500 [1.400, 1.600] of what was accepted; at most 1.05 of it may be",
    ]
    assert "| not-comparable |" in markdown(found)


def test_reasons_have_the_width_of_the_terminal() -> None:
    out = io.StringIO()
    reason = "output-matches-oracle: call 24, out[3, 889]: expected 0.0155, found 0"
    name = "a-workload-with-a-long-name"
    render(record({"name": name, "status": "failed", "reasons": [reason]}), Console(file=out, width=80))
    assert f"      {reason}" in out.getvalue()
