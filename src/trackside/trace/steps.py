"""Where steps begin and end: as marked, as the optimizer steps, or as operators repeat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trackside.trace.links import launch_of
from trackside.trace.model import Ints, Kind, Trace
from trackside.trace.timeline import main_thread, outermost

__all__ = ["Steps", "as_run", "find_steps", "last_steps", "like_steps"]

_PROFILER_MARK = "ProfilerStep#"
_OPTIMIZER = "Optimizer.step#"
# A period must repeat this often, cover this share of the operators, and not be a loop inside a step.
_FEWEST_REPEATS, _COVERED = 3, 0.8
_MOST_OPERATORS = 200_000
# However many rows they have, so many of the last steps are looked at.
_FEWEST_LAST = 5


@dataclass(frozen=True)
class Steps:
    """Steps in order of time, one after the other."""

    begin: Ints
    end: Ints
    found_by: str
    """`marks`, `optimizer`, `repetition`, or `window` where there are none: then it is all one."""

    def __len__(self) -> int:
        return len(self.begin)


def find_steps(trace: Trace) -> Steps:
    """Steps of a trace; never none, but for a trace without events."""
    rows = _annotations(trace, _PROFILER_MARK)
    if len(rows):
        return Steps(trace.start[rows], trace.end[rows], "marks")
    return _by_optimizer(trace) or _by_repetition(trace) or _window(trace)


def as_run(trace: Trace, steps: Steps) -> Steps:
    """Steps as a device has them: each is over when what it has launched is.

    A host runs ahead of its device, and ends a step that the device is about to begin.
    """
    device = trace.on_device
    calls = launch_of(trace, device)
    device, calls = device[calls >= 0], calls[calls >= 0]
    if not len(device):
        return steps
    order = np.argsort(trace.start[calls], kind="stable")
    launched = trace.start[calls][order]
    over = np.maximum.accumulate(trace.end[device][order])

    def done(times: Ints) -> Ints:
        """When all that had been launched before was over."""
        before = np.searchsorted(launched, times) - 1
        return np.where(before >= 0, np.maximum(times, over[np.maximum(before, 0)]), times)

    return Steps(done(steps.begin), done(steps.end), steps.found_by)


def last_steps(trace: Trace, steps: Steps, most_rows: int) -> tuple[Trace, Steps]:
    """The last steps, as many as have so many rows, and their part of the trace: one is like the other."""
    rows = np.searchsorted(np.sort(trace.start), np.append(steps.begin, steps.end[-1]))
    last = len(steps)
    first = last - 1
    while first > 0 and (last - first < _FEWEST_LAST or rows[last] - rows[first - 1] <= most_rows):
        first -= 1
    if first == 0:
        return trace, steps
    begin, end = int(steps.begin[first]), int(steps.end[-1])
    began = trace.start.copy()
    device = trace.on_device
    calls = launch_of(trace, device)
    began[device[calls >= 0]] = trace.start[calls[calls >= 0]]
    kept = trace.where((began >= begin) & (began < end))
    return kept, Steps(steps.begin[first:], steps.end[first:], steps.found_by)


def _annotations(trace: Trace, prefix: str) -> Ints:
    wanted = [i for i, name in enumerate(trace.names) if name.startswith(prefix)]
    found: Ints = np.flatnonzero(np.isin(trace.name, wanted) & (trace.kind == Kind.ANNOTATION))
    return found


def _by_optimizer(trace: Trace) -> Steps | None:
    """From the end of one optimizer's step to the end of its next; several optimizers step by turns."""
    rows = _annotations(trace, _OPTIMIZER)
    if not len(rows):
        return None
    # The one that steps least often ends the step: a generator's, beside five of its critic.
    names, counts = np.unique(trace.name[rows], return_counts=True)
    ends = np.sort(trace.end[rows[trace.name[rows] == names[counts.argmin()]]])
    if len(ends) < 2:
        return None
    return Steps(ends[:-1], ends[1:], "optimizer")


def _by_repetition(trace: Trace) -> Steps | None:
    """The longest pattern of outermost operators that fills most of the main thread by repeating.

    Calls outside operators count too: of a step that replays a graph there may be nothing else.
    """
    rows = _turns(trace)
    period = _period(trace.name[rows].astype(np.int64))
    if period is None:
        return None
    length, first = period
    starts = trace.start[rows[first::length]]
    return Steps(starts[:-1], starts[1:], "repetition") if len(starts) > _FEWEST_REPEATS else None


def _turns(trace: Trace) -> Ints:
    """What a step's pattern is looked for in."""
    rows = outermost(trace, trace.of(Kind.OP, Kind.RUNTIME))
    found: Ints = rows[trace.lane[rows] == main_thread(trace)][:_MOST_OPERATORS]
    return found


def like_steps(trace: Trace, other: Trace, steps: Steps) -> Steps | None:
    """Steps by repetition that begin where those of another trace of the same program do."""
    if steps.found_by != "repetition" or not len(steps):
        return None
    rows, theirs = _turns(trace), _turns(other)
    theirs = theirs[(other.start[theirs] >= steps.begin[0]) & (other.start[theirs] < steps.end[0])]
    names = {name: number for number, name in enumerate(trace.names)}
    pattern = np.array([names.get(other.name_of(row), -1) for row in theirs.tolist()], np.int64)
    if not len(pattern) or len(rows) < len(pattern):
        return None
    tokens = np.lib.stride_tricks.sliding_window_view(trace.name[rows], len(pattern))
    turns = _apart(np.flatnonzero((tokens == pattern).all(axis=1)), len(pattern))
    if not len(turns):
        return None
    begin = trace.start[rows[turns]]
    last = trace.end[rows[turns[-1:] + len(pattern) - 1]]
    return Steps(begin, np.concatenate((begin[1:], last)), "repetition")


def _apart(places: Ints, length: int) -> Ints:
    """Of places in order those that are so far behind the one before: what repeats inside fits in many."""
    kept: list[int] = []
    for place in places.tolist():
        if not kept or place >= kept[-1] + length:
            kept.append(place)
    return np.array(kept, np.int64)


def _period(tokens: Ints) -> tuple[int, int] | None:
    """The length of the pattern that repeats, and where its first whole turn begins.

    A step holds loops (twelve like layers), whose period is shorter: it explains less than the step's does,
    since it breaks where the loop ends. Of periods that explain the same the shortest is taken, as twice a
    period is one too.
    """
    count = len(tokens)
    if count < 2 * _FEWEST_REPEATS:
        return None
    best: tuple[float, int] = (0.0, 0)
    for length in _candidates(tokens):
        same = tokens[length:] == tokens[:-length]
        share = float(same.mean())
        if share > best[0] + 0.01 or _mends(1 - share, 1 - best[0], len(same)):
            best = share, length
    share, length = best
    if share < _COVERED:
        return None
    same = tokens[length:] == tokens[:-length]
    # Where the pattern has settled: behind a first step that sets things up.
    wrong = np.flatnonzero(~same)
    first = int(wrong[wrong < count // 2][-1]) + 1 if (wrong < count // 2).any() else 0
    return length, first


def _mends(wrong: float, before: float, count: int) -> bool:
    """Whether a longer period explains what a shorter one breaks at, again and again."""
    return before * count >= 2 * _FEWEST_REPEATS and wrong <= before / 3


def _candidates(tokens: Ints) -> list[int]:
    """Distances between the rarest operators that still repeat, and between the rarest of two in a row.

    A step's length is among them: if it is nothing but a loop, the loop's end and beginning meet once.
    """
    pairs = tokens[:-1] * (int(tokens.max()) + 1) + tokens[1:]
    return sorted(_distances(tokens) | _distances(pairs))


def _distances(tokens: Ints) -> set[int]:
    values, counts = np.unique(tokens, return_counts=True)
    often = values[counts >= _FEWEST_REPEATS]
    rarest = often[np.argsort(counts[counts >= _FEWEST_REPEATS], kind="stable")][:8]
    found: set[int] = set()
    for value in rarest:
        places = np.flatnonzero(tokens == value)
        distances, times = np.unique(np.diff(places), return_counts=True)
        found.update(int(d) for d in distances[np.argsort(-times)][:4])
        # One that runs several times in a step: its own period is the sum of some distances.
        for stride in range(2, 9):
            wide, times = np.unique(places[stride:] - places[:-stride], return_counts=True)
            if len(wide):
                found.add(int(wide[times.argmax()]))
    return {d for d in found if d * _FEWEST_REPEATS <= len(tokens)}


def _window(trace: Trace) -> Steps:
    if not len(trace):
        return Steps(np.empty(0, np.int64), np.empty(0, np.int64), "window")
    # The profiler's own range spans more than the program's work.
    rows = trace.of(Kind.OP, Kind.RUNTIME, Kind.KERNEL, Kind.COPY, Kind.FILL, Kind.ANNOTATION)
    rows = rows if len(rows) else np.arange(len(trace))
    return Steps(trace.start[rows].min(keepdims=True), trace.end[rows].max(keepdims=True), "window")
