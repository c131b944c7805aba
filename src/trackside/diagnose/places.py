"""Which line of the program each operator of the traced window came from.

The traced window has true times but no lines, the attributed one lines but stretched times. Both hold like
steps of one program, so their operators are paired, and lines carried over.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trackside.profiling.attribution import Attribution
from trackside.profiling.line_stacks import NO_STACK, Line
from trackside.profiling.markers import MARKER_PREFIX
from trackside.trace.links import forward_of, parents
from trackside.trace.model import Ints, Kind, Trace
from trackside.trace.steps import Steps, find_steps, like_steps
from trackside.trace.timeline import outermost

__all__ = ["GapLine", "Places"]

_NONE = -1


# Of the attributed window; one step is like the other.
_MOST_STEPS = 50


@dataclass(frozen=True)
class GapLine:
    """A line that ran before an operator, after the one before it, and its share of that time."""

    line: Line
    share: float


@dataclass(frozen=True, eq=False)
class Places:
    """Lines of one trace's rows."""

    trace: Trace
    steps: Steps
    attribution: Attribution | None

    @cached_property
    def inside(self) -> Ints:
        """For every row the operator around it; -1 where there is none."""
        return parents(self.trace)

    @cached_property
    def forward(self) -> Ints:
        """For every row in a derivative the operator whose it is; -1 for all others."""
        return forward_of(self.trace, self.inside)

    @cached_property
    def _pairs(self) -> Ints:
        """For every host row its like in the attributed window; -1 where there is none."""
        found = np.full(len(self.trace), _NONE)
        if self.attribution is None:
            return found
        other = self.attribution.trace
        theirs = like_steps(other, self.trace, self.steps) or find_steps(other)
        if not len(theirs):
            return found
        count = min(len(theirs), _MOST_STEPS)
        rows = _host_rows(other, parents(other))
        known = [_by_name(other, _in_step(other, rows, theirs, step)) for step in range(count)]
        own = _host_rows(self.trace, self.inside)
        for step in range(len(self.steps)):
            mine = _by_name(self.trace, _in_step(self.trace, own, self.steps, step))
            like = known[min(step, len(known) - 1)]
            for name, rows in mine.items():
                # What only some steps do, such as to begin an epoch, may be in another step there.
                for partners in (one[name] for one in (like, *known) if name in one):
                    left = np.flatnonzero(found[rows] < 0)
                    if not len(left):
                        break
                    left = left[left < len(partners)]
                    found[rows[left]] = partners[left]
        return found

    @cached_property
    def _own(self) -> list[Line | None]:
        """For every row the line that ran when it began."""
        found: list[Line | None] = [None] * len(self.trace)
        if self.attribution is None:
            return found
        rows = np.flatnonzero(self._pairs >= 0)
        other, spans, clock = self.attribution.trace, self.attribution.spans, self.attribution.clock
        partners = self._pairs[rows]
        for lane in np.unique(other.lane[partners]) if len(rows) else ():
            thread = other.lanes[lane].thread
            if not thread.isdigit():
                continue
            here = other.lane[partners] == lane
            numbers = spans.line_at(int(thread), clock.to_log(other.start[partners[here]])).lines
            for row, number in zip(rows[here].tolist(), numbers.tolist(), strict=True):
                if number != NO_STACK:
                    found[row] = spans.stacks.lines[number]
        return found

    def line(self, row: int) -> Line | None:
        """The line that ran an operator or a call in it; of a derivative that of the operator whose it is."""
        forward = int(self.forward[row])
        return self._own[forward if forward >= 0 else self._operator(row)]

    def caller(self, row: int) -> Line | None:
        """The line that was running: of a derivative the one that asked for it."""
        return self._own[self._operator(row)]

    def _operator(self, row: int) -> int:
        """A call of the runtime is its operator's, unless the program itself made it."""
        around = int(self.inside[row])
        return around if self.trace.kind[row] == Kind.RUNTIME and around >= 0 else row

    @cached_property
    def gaps(self) -> dict[int, tuple[GapLine, ...]]:
        """For an outermost operator what ran on its thread since the one before it ended, by line."""
        found: dict[int, tuple[GapLine, ...]] = {}
        if self.attribution is None:
            return found
        other, clock = self.attribution.trace, self.attribution.clock
        rows = outermost(self.trace, self.trace.of(Kind.OP))
        rows = rows[self._pairs[rows] >= 0]
        before = _ends_before(other)
        stacks = self.attribution.spans.stacks
        line_ids = np.asarray(stacks.line_ids)
        for thread in self.attribution.spans.threads:
            for row in rows.tolist():
                partner = int(self._pairs[row])
                lane = other.lanes[other.lane[partner]]
                since = before.get(partner, _NONE)
                if since < 0 or lane.thread != str(thread.native_id):
                    continue
                begin, end = clock.to_log([since, int(other.start[partner])]).tolist()
                if end <= begin:
                    continue
                first = max(0, int(np.searchsorted(thread.starts, begin, "right")) - 1)
                last = int(np.searchsorted(thread.starts, end, "left"))
                own = thread.stacks[first:last]
                length = np.minimum(thread.ends[first:last], end) - np.maximum(
                    thread.starts[first:last], begin
                )
                shares: dict[Line, float] = {}
                for stack, ns in zip(own.tolist(), length.tolist(), strict=True):
                    if stack != NO_STACK and ns > 0:
                        line = stacks.lines[line_ids[stack]]
                        shares[line] = shares.get(line, 0.0) + ns / (end - begin)
                found[row] = tuple(GapLine(line, share) for line, share in shares.items())
        return found


def _host_rows(trace: Trace, inside: Ints) -> Ints:
    """Operators and ranges, and the runtime's calls that are in no operator, such as a graph's launch."""
    rows = trace.of(Kind.OP, Kind.ANNOTATION, Kind.RUNTIME)
    found: Ints = rows[(trace.kind[rows] != Kind.RUNTIME) | (inside[rows] < 0)]
    return found


def _in_step(trace: Trace, rows: Ints, steps: Steps, step: int) -> Ints:
    begin, end = int(steps.begin[step]), int(steps.end[step])
    found: Ints = rows[(trace.start[rows] >= begin) & (trace.start[rows] < end)]
    return found


def _by_name(trace: Trace, rows: Ints) -> dict[str, Ints]:
    """Rows of each name in order of time: the third `aten::add` of a step is the third of any other."""
    numbers = trace.name[rows]
    return {trace.names[number]: rows[numbers == number] for number in np.unique(numbers)}


def _ends_before(trace: Trace) -> dict[int, int]:
    """For each outermost operator, when the one before it on its thread ended."""
    found: dict[int, int] = {}
    rows = trace.of(Kind.OP)
    ours = [i for i, name in enumerate(trace.names) if name.startswith(MARKER_PREFIX)]
    rows = outermost(trace, rows[~np.isin(trace.name[rows], ours)])
    for lane in np.unique(trace.lane[rows]):
        here = rows[trace.lane[rows] == lane]
        ends = np.maximum.accumulate(trace.end[here])
        found |= dict(zip(here[1:].tolist(), ends[:-1].tolist(), strict=True))
    return found
