"""Reads what a capture left in its folder; where something is missing it says what, why, and what follows."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from trackside.profiling.attribution import Attribution, attribute
from trackside.profiling.clock import NoMarkers, fit
from trackside.profiling.line_events import CodePlace, Costs, LineEvents, Mute, ThreadStart
from trackside.profiling.line_times import line_spans
from trackside.profiling.markers import MARKER_PREFIX, Marker
from trackside.records.errors import TracksideError
from trackside.records.profile import Trust, WindowTimes
from trackside.stats.spread import quantile
from trackside.trace.model import Kind, Trace
from trackside.trace.reader import read_trace

__all__ = ["Captured", "read_capture"]


@dataclass
class Captured:
    """One program's windows, traces and lines."""

    windows: list[WindowTimes] = field(default_factory=list)
    traced: Trace | None = None
    """Without the line log."""
    attribution: Attribution | None = None
    attributed_steps: int = 0
    missing: list[Trust] = field(default_factory=list)
    step_times_ms: dict[str, list[float]] = field(default_factory=dict)
    """Every step of each window, by the host's clock."""

    def window(self, name: str) -> WindowTimes | None:
        return next((one for one in self.windows if one.window == name), None)


def read_capture(folder: Path) -> Captured:
    """Everything that a capture wrote before the program ended, however it ended."""
    found = Captured()
    document = _json(folder / "windows.json", found)
    windows = {one["stage"]: one for one in document.get("windows", [])}
    found.missing += [
        Trust(what="part of the capture", effect=f"it ended early: {text}", remedy=None)
        for text in document.get("trouble", [])
    ]
    _read_windows(windows, found)
    if windows and not found.window("A"):
        found.missing.append(
            Trust(
                what="true step times",
                effect="the program ended before enough steps were seen; times are those of traced steps",
                remedy="let it run more steps, or ask for fewer: --warmup 1 --steps 2",
            )
        )
    found.traced = _trace(folder / "trace-T.json", found)
    _attribute(folder, found)
    attributed = windows.get("B")
    found.attributed_steps = len(attributed["ends_ns"]) if attributed else 0
    return found


def _read_windows(windows: dict[str, Any], found: Captured) -> None:
    base: float | None = None
    for name in ("A", "T", "B"):
        window = windows.get(name)
        if window is None or not window["ends_ns"]:
            continue
        ends = [window["began_ns"], *window["ends_ns"]]
        steps = [(after - before) / 1e6 for before, after in pairwise(ends)]
        found.step_times_ms[name] = steps
        # A host runs ahead of its device: the device was waited for at both ends of the window only.
        closed = window["closed_ns"] or ends[-1]
        step_ms = max(median(steps), (closed - ends[0]) / 1e6 / len(steps)) if name == "A" else median(steps)
        middle = median(steps)
        spread = (quantile(steps, 0.75) - quantile(steps, 0.25)) / middle if middle else 0.0
        slowdown = step_ms / base if base else None
        base = base or (step_ms if name == "A" else None)
        found.windows.append(
            WindowTimes(window=name, steps=len(steps), step_ms=step_ms, spread=spread, slowdown=slowdown)
        )


def _json(path: Path, found: Captured) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        found.missing.append(Trust(what=path.name, effect=f"it cannot be read: {error}", remedy=None))
        return {}
    return document


def _trace(path: Path, found: Captured) -> Trace | None:
    if not path.exists():
        return None
    try:
        trace = read_trace(path)
    except TracksideError as error:
        found.missing.append(Trust(what=path.name, effect=error.message, remedy=error.remedy))
        return None
    found.missing += [Trust(what=cut.what, effect=cut.why, remedy=None) for cut in trace.cuts]
    return trace


def _attribute(folder: Path, found: Captured) -> None:
    document = _json(folder / "lines-B.json", found)
    trace = _trace(folder / "trace-B.json", found)
    if not document or trace is None:
        if trace is not None:
            found.missing.append(
                Trust(what="lines", effect="no time can be given to a line of the program", remedy=None)
            )
        return
    events = _events(document)
    found.missing += [Trust(what="lines", effect=text, remedy=None) for text in events.incomplete]
    try:
        clock = fit((Marker(**one) for one in document["markers"]), _marks(trace))
    except NoMarkers as error:
        found.missing.append(Trust(what="lines", effect=str(error), remedy=None))
        return
    found.attribution = attribute(trace, line_spans(events), clock)


def _marks(trace: Trace) -> list[tuple[str, int, int]]:
    ours = [i for i, name in enumerate(trace.names) if name.startswith(MARKER_PREFIX)]
    rows = np.flatnonzero(np.isin(trace.name, ours) & (trace.kind != Kind.DEVICE_ANNOTATION))
    return [(trace.name_of(row), int(trace.start[row]), int(trace.end[row])) for row in rows.tolist()]


def _events(document: dict[str, Any]) -> LineEvents:
    return LineEvents(
        start_ns=document["start_ns"],
        stop_ns=document["stop_ns"],
        **{name: array("q", document[name]) for name in ("times", "threads", "codes", "numbers")},
        places=tuple(CodePlace(**one) for one in document["places"]),
        thread_starts=tuple(
            ThreadStart(one["native_id"], one["name"], tuple((code, line) for code, line in one["stack"]))
            for one in document["thread_starts"]
        ),
        mutes=tuple(Mute(**one) for one in document["mutes"]),
        costs=Costs(**document["costs"]),
        incomplete=tuple(document["incomplete"]),
    )
