"""How long the steps of each window took: by their ends where they were seen, by progress where not."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import Any, get_args

from trackside.records.profile import WindowName, WindowTimes
from trackside.stats.spread import quantile
from trackside.trace.steps import Steps

__all__ = ["by_progress", "by_steps", "steps_ms"]

# A step in which the program's own Python did less moves the count by too little to be told.
_LEAST_PROGRESS = 3.0


def by_steps(windows: Mapping[str, Any]) -> list[WindowTimes]:
    """From the ends of steps, as `windows.json` has them."""
    found: list[WindowTimes] = []
    for name in get_args(WindowName):
        window = windows.get(name)
        if window is None or not window["ends_ns"]:
            continue
        steps = steps_ms(window)
        # A host runs ahead of its device, which was waited for at both ends of the window only.
        closed = window["ends_ns"][-1] if window.get("cut") else window["closed_ns"] or window["ends_ns"][-1]
        step_ms = max(median(steps), (closed - window["began_ns"]) / 1e6 / len(steps))
        found.append(_times(name, len(steps), step_ms, steps, found))
    return found


def steps_ms(window: Mapping[str, Any]) -> list[float]:
    """How long each step of a window took, as `windows.json` has it."""
    ends = [window["began_ns"], *window["ends_ns"]]
    return [(after - before) / 1e6 for before, after in pairwise(ends)]


def by_progress(
    windows: Mapping[str, Any], traced: Steps | None, in_window: float, attributed: Steps | None
) -> list[WindowTimes]:
    """From the steps found in the traces; the untraced window's from how much faster it got on.

    Args:
        windows: as `windows.json` has them.
        traced: the steps of window T.
        in_window: how many that window had in all, with those at its ends of which only a part lies in it.
        attributed: those of window B.
    """
    found: list[WindowTimes] = []
    if traced is not None and len(traced):
        found += _untraced_times("A", windows, in_window, found)
    beside: tuple[tuple[WindowName, Steps | None], ...] = (("T", traced), ("B", attributed))
    for name, steps in beside:
        if steps is not None and len(steps):
            lengths = ((steps.end - steps.begin) / 1e6).tolist()
            found.append(_times(name, len(lengths), sum(lengths) / len(lengths), lengths, found))
    if traced is not None and len(traced):
        found += _untraced_times("K", windows, in_window, found)
    return found


def _untraced_times(
    name: WindowName, windows: Mapping[str, Any], traced_steps: float, before: list[WindowTimes]
) -> list[WindowTimes]:
    """Those of an untraced window, if it shows any."""
    stretches = _untraced(name, windows, traced_steps)
    count = sum(done for _, done in stretches)
    if not count:
        return []
    lengths = [ms / done for ms, done in stretches]
    mean = sum(ms for ms, _ in stretches) / count
    return [_times(name, max(1, round(count)), mean, lengths, before)]


def _untraced(name: str, windows: Mapping[str, Any], traced_steps: float) -> list[tuple[float, float]]:
    """Stretches of an untraced window: milliseconds, and steps that were done in them."""
    timed, traced = windows.get(name), windows.get("T")
    if timed is None or traced is None or len(traced["progress"]) < 2 or len(timed["progress"]) < 2:
        return []
    # Not by time, which may be uneven; reading the count counts one.
    in_step = (traced["progress"][-1][1] - traced["progress"][0][1] - 1) / traced_steps
    if in_step < _LEAST_PROGRESS:
        return []
    found = []
    (begin, first), reads = timed["progress"][0], 0
    for end, last in timed["progress"][1:]:
        reads += 1
        done = (last - first - reads) / in_step
        if done >= 1:
            found.append(((end - begin) / 1e6, done))
            begin, first, reads = end, last, 0
    return found


def _times(
    name: WindowName, count: int, step_ms: float, steps: list[float], before: list[WindowTimes]
) -> WindowTimes:
    middle = median(steps)
    spread = (quantile(steps, 0.75) - quantile(steps, 0.25)) / middle if middle else 0.0
    base = before[0].step_ms if before and before[0].window == "A" else None
    return WindowTimes(
        window=name, steps=count, step_ms=step_ms, spread=spread, slowdown=step_ms / base if base else None
    )
