"""The status of a watch on a terminal of any size."""

import io
from typing import Any

import pytest
from rich.console import Console

from trackside.report.watch_text import clock_time, screen

REJECTED = "fused.py: rejected, output differs on row 3 (out[3, 16]: expected 0.163, found 0.0312)"


def document(items: list[tuple[str, str]], **more: Any) -> dict[str, Any]:
    return {
        "suite": "/project/trackside.toml",
        "state": "watching",
        "error": None,
        "items": [{"state": state, "line": line} for state, line in items],
        "events": [{"time": "2026-11-18T04:45:36+00:00", "line": "fused.py: checking its outputs"}] * 9,
    } | more


def shown(found: dict[str, Any], width: int, height: int | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height or 100)
    console.print(screen(found, console, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip("\n").split("\n")


def test_what_goes_on_in_the_next_line_is_set_in() -> None:
    lines = shown(document([("rejected", REJECTED)]), 60)
    assert lines[0].strip() == "watching /project/trackside.toml"
    assert [line.startswith("  ") for line in lines[1:]] == [True] * (len(lines) - 1)
    narrow = shown(document([], events=[{"time": "2026-11-18T04:45:36+00:00", "line": REJECTED}]), 40)
    assert all(line.startswith(" " * 11) for line in narrow[2:])


@pytest.mark.parametrize("width", [30, 60, 120])
@pytest.mark.parametrize("height", [6, 12, 24])
def test_it_fits_the_screen_and_counts_what_it_leaves_out(width: int, height: int) -> None:
    items = [("right", f"good_{number}.py: right") for number in range(40)]
    items.insert(30, ("rejected", "fused.py: rejected, no row is right"))
    lines = shown(document(items), width, height)
    assert len(lines) <= height
    assert any("fused.py: rejected" in line for line in lines)
    shown_items = sum("good_" in line or "fused" in line for line in lines)
    assert any(f"… {41 - shown_items} more" in line for line in lines)


def test_a_watch_that_ended_is_not_said_to_watch() -> None:
    assert "watching" not in "".join(shown(document([], state="ended"), 80))


def test_times_are_those_of_the_readers_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC-9")
    time.tzset()
    try:
        assert clock_time("2026-11-18T04:45:36+00:00") == "13:45:36"
    finally:
        monkeypatch.undo()
        time.tzset()
