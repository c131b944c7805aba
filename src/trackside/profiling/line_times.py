"""From a line log to spans of time with their stacks of lines: what ran at a given time, and for how long."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trackside.profiling.line_events import (
    CALLED,
    PAUSED,
    RAISED,
    RETURNED,
    SKIPPED_CALLS,
    SKIPPED_LINES,
    LineEvents,
)
from trackside.profiling.line_mixtures import Spans, own_times
from trackside.profiling.line_stacks import NO_STACK, Line, LineStacks

__all__ = [
    "LineSpans",
    "LinesAt",
    "ThreadSpans",
    "inclusive_times",
    "line_spans",
    "self_times",
    "without_breaks",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# What a stack usually takes cannot be told from fewer.
_FEWEST_RUNS = 3


class LinesAt(NamedTuple):
    """What ran at each of the times asked for; `NO_STACK`, in both, where no code of the user's did."""

    lines: Ints
    """Indices into `LineStacks.lines`: the innermost line of the user's."""
    stacks: Ints


@dataclass(frozen=True, slots=True)
class ThreadSpans:
    """What a thread ran from the beginning of the log to its end, without gaps."""

    native_id: int | None
    name: str | None
    starts: Ints
    ends: Ints
    stacks: Ints
    """`NO_STACK` where no code of the user's ran."""


@dataclass(frozen=True, slots=True)
class LineSpans:
    """A line log as spans of time."""

    stacks: LineStacks
    threads: tuple[ThreadSpans, ...]
    own_ns: Floats
    """For each stack, how long it was the one that ran, over all threads, without what logging cost."""

    def line_at(self, thread: int, times: npt.ArrayLike) -> LinesAt:
        """The innermost line of the user's, and its stack, at those times on the log's clock.

        Args:
            thread: the kernel's number of it; of a thread that the log did not see nothing is known.
            times: nanoseconds.
        """
        asked = np.asarray(times, dtype=np.int64)
        found = np.full(asked.shape, NO_STACK, dtype=np.int64)
        for one in self.threads:
            if one.native_id == thread:
                at = np.searchsorted(one.starts, asked, side="right") - 1
                inside = (at >= 0) & (asked < one.ends[-1])
                found[inside] = one.stacks[at[inside]]
        lines = np.full(asked.shape, NO_STACK, dtype=np.int64)
        somewhere = found != NO_STACK
        lines[somewhere] = np.asarray(self.stacks.line_ids, dtype=np.int64)[found[somewhere]]
        return LinesAt(lines, found)


def line_spans(events: LineEvents, since_ns: int | None = None) -> LineSpans:
    """The spans of a log, thread by thread.

    Args:
        since_ns: what began before is left out; not where lines were muted, whose time is split by what was
            seen at the beginning.
    """
    stacks = LineStacks(events.places)
    columns = [
        np.frombuffer(column, dtype=np.int64) for column in (events.times, events.codes, events.numbers)
    ]
    owners = np.frombuffer(events.threads, dtype=np.int64)
    threads, walks = [], []
    for index, start in enumerate(events.thread_starts):
        walk = _Walk(events, stacks, start.stack)
        rows = owners == index
        times, codes, numbers = (column[rows] for column in columns)
        # Another thread may have had an event while the hooks were put on or taken off.
        times = np.clip(times, events.start_ns, events.stop_ns)
        walk.follow(times.tolist(), codes.tolist(), numbers.tolist())
        starts = np.array(walk.starts, dtype=np.int64)
        ends = np.append(starts[1:], events.stop_ns)
        first = 0
        if since_ns is not None and not events.mutes:
            first = int(np.searchsorted(starts, since_ns))
            walk.forget(first)
        told = np.array(walk.stacks, dtype=np.int64)
        threads.append(ThreadSpans(start.native_id, start.name, starts[first:], ends[first:], told))
        walks.append(walk)
    return LineSpans(stacks, tuple(threads), _own_times(events, stacks, threads, walks))


def without_breaks(spans: LineSpans, ready_ns: float) -> LineSpans:
    """The spans without what others had the main thread's core for.

    How long that was is known, and where it was is not: it is taken off the spans that are longer than those
    of their stack usually are, the longest first. Where nobody else had the core, what a line does now and
    then stays.

    Args:
        ready_ns: how long the thread that was logged first stood ready to run and did not.
    """
    if not spans.threads or ready_ns <= 0:
        return spans
    main = spans.threads[0]
    seen = np.flatnonzero(main.stacks != NO_STACK)
    stacks, lengths = main.stacks[seen], (main.ends - main.starts)[seen]
    order = np.lexsort((lengths, stacks))
    known, first, count = np.unique(stacks[order], return_index=True, return_counts=True)
    usual = np.zeros(int(stacks.max(initial=0)) + 1)
    usual[known] = lengths[order][first + count // 2]
    runs = np.zeros(len(usual), np.int64)
    runs[known] = count
    longer = np.where(runs[stacks] >= _FEWEST_RUNS, lengths - usual[stacks], 0.0).clip(0.0)
    by_length = np.argsort(-longer, kind="stable")
    before = np.cumsum(longer[by_length]) - longer[by_length]
    taken = np.clip(ready_ns - before, 0.0, longer[by_length])
    off = np.bincount(stacks[by_length], taken, len(spans.own_ns))
    return replace(spans, own_ns=np.maximum(spans.own_ns - off, 0.0))


def self_times(spans: LineSpans) -> dict[Line, float]:
    """For each line, the nanoseconds in which it was the innermost of the user's, over all threads."""
    sums = np.bincount(
        np.asarray(spans.stacks.line_ids, dtype=np.int64), spans.own_ns, len(spans.stacks.lines)
    )
    return dict(zip(spans.stacks.lines, sums.tolist(), strict=True))


def inclusive_times(spans: LineSpans) -> dict[Line, float]:
    """For each line, the nanoseconds in which it was anywhere in the stack; recursion counts once."""
    stacks = spans.stacks
    totals = spans.own_ns.copy()
    for stack in range(len(stacks) - 1, -1, -1):  # callers have smaller numbers
        if stacks.parents[stack] != NO_STACK:
            totals[stacks.parents[stack]] += totals[stack]
    sums = dict.fromkeys(stacks.lines, 0.0)
    for stack in _outermost(stacks):
        sums[stacks.line(stack)] += float(totals[stack])
    return sums


def _outermost(stacks: LineStacks) -> Iterator[int]:
    """The stacks whose innermost line is not among their callers' lines."""
    children: dict[int, list[int]] = {}
    for stack, parent in enumerate(stacks.parents):
        children.setdefault(parent, []).append(stack)
    inside = [0] * len(stacks.lines)
    todo = list(children.get(NO_STACK, ()))
    while todo:
        stack = todo.pop()
        if stack < 0:  # back from what stands on it
            inside[stacks.line_ids[~stack]] -= 1
            continue
        line = stacks.line_ids[stack]
        if not inside[line]:
            yield stack
        inside[line] += 1
        todo.append(~stack)
        todo += children.get(stack, ())


class _Walk:
    """Follows one thread's events: its stack of frames after each, and what of the time is the log's own."""

    def __init__(self, events: LineEvents, stacks: LineStacks, begin: tuple[tuple[int, int], ...]) -> None:
        self.starts: list[int] = []
        self.stacks: list[int] = []
        self.anchors: list[int] = []
        self.charges: list[float] = []
        self.skips: list[float] = []
        self.if_muted: list[float] = []
        """What the event costs once it is muted."""
        self._lines = stacks
        self._number = stacks.number
        self._costs = events.costs
        self._far_ns = events.far_ns
        self._frames: list[list[int]] = []
        """Code, the callers' stack, the frame's own, and whether it had a rare line.

        A rare line is one that is not muted though its code is, sooner or later.
        """
        self._group_of = {(mute.code, mute.line): mute.group for mute in events.mutes if mute.line}
        self._silences = sorted((mute.time_ns, mute.code) for mute in events.mutes if not mute.line)
        for code, line in begin:
            self._enter(code, line)
        self._add(events.start_ns, self._top(), self._top(), 0.0, 0.0)

    def follow(self, times: list[int], codes: list[int], numbers: list[int]) -> None:
        costs = self._costs
        quiet = {code for _, code in self._silences}
        silent: set[int] = set()
        ahead = iter([*self._silences, (1 << 62, NO_STACK)])
        next_silence, next_silent = next(ahead)
        group: tuple[int, int] | None = None
        anchor = self.anchors[-1]
        for time, code, number in zip(times, codes, numbers, strict=True):
            while time >= next_silence:
                silent.add(next_silent)
                self._drop(next_silent)
                next_silence, next_silent = next(ahead)
            if number <= SKIPPED_LINES:
                self.skips[-1] += (SKIPPED_LINES - number) * costs.muted_line_ns
                continue
            if number <= SKIPPED_CALLS:
                self.skips[-1] += (SKIPPED_CALLS - number) * costs.skipped_call_ns
                continue
            if number == PAUSED:
                self.charges[-1] = np.inf  # all of it
                self._add(time, self._top(), anchor, 0.0, 0.0)
                continue
            if code in silent and not self._is_rare(code, number):
                continue
            rare = number > 0 and (code, number) not in self._group_of
            if number > 0:
                charge = costs.line_ns
                self.charges[-1] += self._far_ns.get((code, number), 0.0)  # spent before the event
                self._reach(code, number, rare)
            elif number == RETURNED:
                charge = costs.call_ns
                rare = self._leave(code)
            elif number > RAISED:
                charge = costs.call_ns
                self._enter(code, CALLED - number)
            else:
                # An exception thrown into a generator: nothing else tells that it is on the stack again.
                charge = costs.line_ns
                if not self._frames or self._frames[-1][0] != code:
                    self._enter(code, RAISED - number)
            top, if_muted = self._top(), 0.0
            if code in quiet and not rare:
                if_muted = costs.skipped_call_ns if RAISED < number < RETURNED else 0.0
            else:
                of_line = self._group_of.get((code, number))
                now = None if of_line is None else (code, of_line)
                if now is None or now != group:
                    anchor = top
                else:
                    if_muted = costs.muted_line_ns
                group = now
            self._add(time, top, anchor, charge, if_muted)

    def forget(self, count: int) -> None:
        """Leave the first spans out."""
        for column in (self.starts, self.stacks, self.anchors, self.charges, self.skips, self.if_muted):
            del column[:count]

    def _is_rare(self, code: int, number: int) -> bool:
        """Of code that is muted whole, a line that is not, or the return after one."""
        if number > 0:
            return (code, number) not in self._group_of
        return number == RETURNED and any(frame[0] == code for frame in self._frames)

    def _add(self, time: int, stack: int, anchor: int, charge: float, if_muted: float) -> None:
        self.starts.append(time)
        self.stacks.append(stack)
        self.anchors.append(anchor)
        self.charges.append(charge)
        self.skips.append(0.0)
        self.if_muted.append(if_muted)

    def _top(self) -> int:
        return self._frames[-1][2] if self._frames else NO_STACK

    def _enter(self, code: int, line: int) -> None:
        below = self._top()
        self._frames.append([code, below, self._number(below, code, line), 0])

    def _reach(self, code: int, line: int, rare: bool) -> None:
        if not self._return_to(code):
            self._enter(code, line)
        frame = self._frames[-1]
        frame[2] = self._number(frame[1], code, line)
        frame[3] |= rare

    def _leave(self, code: int) -> bool:
        return self._return_to(code) and bool(self._frames.pop()[3])

    def _return_to(self, code: int) -> bool:
        """Whether that code is on the stack; its innermost frame is then on top.

        As a rule it is there already. It is not where events were lost, as by an interrupt in a hook.
        """
        frames = self._frames
        if frames and frames[-1][0] == code:
            return True
        if all(frame[0] != code for frame in frames):
            return False
        while frames[-1][0] != code:
            frames.pop()
        return True

    def _drop(self, code: int) -> None:
        """Takes the frames of a code object off the stack that is not logged any more."""
        if any(frame[0] == code for frame in self._frames):
            kept = [frame for frame in self._frames if frame[0] != code]
            lines = [self._lines.line(frame[2]).line for frame in kept]
            self._frames = []
            for frame, line in zip(kept, lines, strict=True):
                self._enter(frame[0], line)


def _own_times(
    events: LineEvents, stacks: LineStacks, threads: list[ThreadSpans], walks: list[_Walk]
) -> Floats:
    if not threads:
        return np.zeros(0)
    spans = np.concatenate([one.stacks for one in threads])
    somewhere = spans != NO_STACK
    anchors = np.concatenate([walk.anchors for walk in walks]).astype(np.int64)
    return own_times(
        stacks,
        events.mutes,
        events.costs.plain_line_ns,
        Spans(
            stacks=spans[somewhere],
            anchors=np.where(anchors == NO_STACK, spans, anchors)[somewhere],
            starts=np.concatenate([one.starts for one in threads])[somewhere],
            ends=np.concatenate([one.ends for one in threads])[somewhere],
            charges=np.concatenate([walk.charges for walk in walks])[somewhere],
            skips=np.concatenate([walk.skips for walk in walks])[somewhere],
            if_muted=np.concatenate([walk.if_muted for walk in walks])[somewhere],
        ),
    )
