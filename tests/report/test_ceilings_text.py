"""Ceilings on a terminal: what was unsteady or disturbed is said."""

from io import StringIO
from typing import Any

from rich.console import Console

from trackside.records.ceilings import Ceiling, CeilingsRecord
from trackside.report.ceilings_text import render


def row(title: str, spread: float) -> Ceiling:
    return Ceiling(
        place="cpu", name=title, title=title, unit="B/s", value=2e9, best=2e9, spread=spread, n=5, method=""
    )


def shown(**more: Any) -> list[str]:
    fields: dict[str, Any] = {
        "fingerprint": "f",
        "places": ["cpu"],
        "ceilings": [],
        "sustained": [],
        "skipped": [],
        "sentences": [],
        "disk_folder": None,
        "software": {},
        "measured_at": "2026-11-16T08:00:00+00:00",
        "seconds": 9,
        "version": "1",
    }
    out = StringIO()
    render(CeilingsRecord(**fields | more).to_dict(), Console(file=out, width=200))
    return [line.strip() for line in out.getvalue().splitlines()]


def test_unsteady_rows_are_marked_and_explained_once() -> None:
    lines = shown(ceilings=[row("memory read", 0.35), row("memory copy", 0.2), row("memory write", 0.21)])
    marked = [line.split()[1] for line in lines if line.startswith("memory") and "!" in line]
    assert marked == ["read", "write"]
    remark = "! unsteady: the machine was busy, or shares its hardware; measure again with --fresh"
    assert lines.count(remark) == 1


def test_steady_rows_need_no_remark() -> None:
    assert "!" not in "".join(shown(ceilings=[row("memory read", 0.05)]))


def test_disturbances_take_one_line() -> None:
    found = [line for line in shown(disturbed=[f"cpu: steal {i}" for i in range(5)]) if "steal" in line]
    assert found == ["disturbed: cpu: steal 0; cpu: steal 1; cpu: steal 2; and 2 more (--json)"]
    assert not any("disturbed" in line for line in shown())


def test_a_failed_record_says_why() -> None:
    assert "failed: measuring cpu ended with 1" in shown(status="failed", error="measuring cpu ended with 1")
