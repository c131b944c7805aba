"""Time to lines: what each line of the program started on a device, took on the host, and cost in reverse.

Trace and line log are joined by time. A kernel belongs to the line that ran when it was launched; if a
derivative launched it, to the line that ran the operator whose derivative it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trackside.profiling.clock import ClockFit
from trackside.profiling.fresh_memory import MOST_TOUCH_NS, untouched
from trackside.profiling.line_stacks import NO_STACK, Line
from trackside.profiling.line_times import LineSpans, self_times
from trackside.profiling.provenance import Origin
from trackside.trace.intervals import Intervals, merged
from trackside.trace.links import Origins, launch_of
from trackside.trace.model import Ints, Kind, Mask, Trace
from trackside.trace.timeline import communicates, main_thread, outermost

__all__ = ["BUCKETS", "Attribution", "LineTime", "attribute", "bucket_at"]

_OPTIMIZER, _LOADER = "Optimizer.", "enumerate(DataLoader)#"
_ENGINE = "autograd::engine"
BUCKETS = (
    "optimizer",
    "loading",
    "copies",
    "communication",
    "autograd",
    "unattributed",
)
_BUCKET_AT = {name: -2 - place for place, name in enumerate(BUCKETS)}


def bucket_at(number: int) -> str:
    """The name of a bucket, by its number below -1."""
    return BUCKETS[-2 - number]


@dataclass
class LineTime:
    """One line, in nanoseconds of the whole window."""

    function: str = ""
    device_ns: float = 0.0
    backward_ns: float = 0.0
    cpu_ns: float = 0.0
    """While it was the innermost, without derivatives, the optimizer's step and loading."""
    shared: bool = False
    """Part of its time is a compiled kernel's that comes from other lines too, in equal parts."""


@dataclass(frozen=True)
class Attribution:
    """A window's time, by line and, where it belongs to none, by bucket."""

    lines: dict[Line, LineTime]
    device_ns: dict[str, float]
    """By bucket."""
    cpu_ns: dict[str, float]
    total_device_ns: float
    row_line: Ints = field(repr=False)
    """For every row on a device a number in `known`, or below -1 for a bucket; -1 for all others."""
    known: list[Line] = field(repr=False)
    trace: Trace = field(repr=False)
    """The window's own, of whose rows the above speaks."""
    spans: LineSpans = field(repr=False)
    clock: ClockFit = field(repr=False)
    places: Callable[[Ints], tuple[Ints, Mask]] = field(repr=False)
    """For rows on the host, as `row_line` has them, and which of them are a derivative's."""
    callers: dict[str, list[Line]] = field(default_factory=dict, repr=False)
    """By name of a kernel (without a device: of an operator), the lines that ran it, the longest first."""

    @property
    def attributed_share(self) -> float:
        """Of all device time (without a device: of the host's), what has a line or a bucket with a name."""
        if self.total_device_ns:
            return 1 - self.device_ns["unattributed"] / self.total_device_ns
        total = sum(self.cpu_ns.values()) + sum(one.cpu_ns + one.backward_ns for one in self.lines.values())
        return 1 - self.cpu_ns["unattributed"] / total if total else 0.0


def attribute(
    trace: Trace,
    spans: LineSpans,
    clock: ClockFit,
    compiled: Mapping[int, Sequence[Origin]] | None = None,
    alone: LineSpans | None = None,
    turns: float | None = None,
    touch_ns: float = MOST_TOUCH_NS,
) -> Attribution:
    """Join a trace and the line log of the same window.

    Args:
        compiled: for operators of compiled graphs, the lines that they come from.
        alone: the line log of a window that nothing traced. Tracing stretches a line with a hundred small
            operators to twice its time and one that reads a list not at all, so each line's time is what it
            was there, and the trace tells what of it is whose.
        turns: how many steps this window has for each of `alone`; None where there are no steps to count.
        touch_ns: what the first touch of a byte has cost here at most.
    """
    longer = _longer(spans, alone, turns)
    return _Join(trace, spans, clock, compiled or {}, _stretched(spans, alone), longer, touch_ns).result()


def _longer(spans: LineSpans, alone: LineSpans | None, turns: float | None) -> dict[Line, float]:
    """By how many nanoseconds of the window each line took longer than it does untraced."""
    if alone is None or turns is None:
        return {}
    traced = self_times(spans)
    return {line: traced.get(line, 0.0) - turns * ns for line, ns in self_times(alone).items()}


def _stretched(spans: LineSpans, alone: LineSpans | None) -> dict[Line, float]:
    """For each line that both have seen, its share without tracing by that with it."""
    if alone is None:
        return {}
    before, traced = self_times(alone), self_times(spans)
    whole, whole_traced = sum(before.values()), sum(traced.values())
    return {
        line: (ns / whole) / (traced[line] / whole_traced)
        for line, ns in before.items()
        if ns > 0 and traced.get(line, 0.0) > 0
    }


class _Join:
    def __init__(
        self,
        trace: Trace,
        spans: LineSpans,
        clock: ClockFit,
        compiled: Mapping[int, Sequence[Origin]],
        scales: Mapping[Line, float],
        longer: Mapping[Line, float],
        touch_ns: float,
    ) -> None:
        self.trace, self.spans, self.clock, self.compiled = trace, spans, clock, compiled
        self.longer, self.touch_ns = longer, touch_ns
        self.scales = scales
        """What of a line's time in the window is its own; of lines that are not there, all."""
        self.known = list(spans.stacks.lines)
        """Lines by number: those of the log, then those that were compiled."""
        self.origins = Origins(trace)
        self.threads = np.array(
            [int(lane.thread) if lane.device < 0 and lane.thread.isdigit() else -1 for lane in trace.lanes]
        )
        self.optimizing = self._ranges(_OPTIMIZER)
        self.loading = self._ranges(_LOADER)
        self.engine = {i for i, name in enumerate(trace.names) if name.startswith(_ENGINE)}
        self.functions = {
            spans.stacks.line(stack): spans.stacks.function(stack) for stack in range(len(spans.stacks))
        }

    def _ranges(self, prefix: str) -> dict[int, Intervals]:
        """By lane, when one of these ranges was open."""
        wanted = [i for i, name in enumerate(self.trace.names) if name.startswith(prefix)]
        rows = np.flatnonzero(np.isin(self.trace.name, wanted) & (self.trace.kind == Kind.ANNOTATION))
        return {
            int(lane): merged(
                self.trace.start[rows[self.trace.lane[rows] == lane]],
                self.trace.end[rows[self.trace.lane[rows] == lane]],
            )
            for lane in np.unique(self.trace.lane[rows])
        }

    def result(self) -> Attribution:
        trace = self.trace
        row_line = np.full(len(trace), -1)
        device = trace.on_device
        calls = launch_of(trace, device)
        places, is_backward = self._places(calls)
        shared = self._from_compiled(calls, places)
        places[np.isin(trace.kind[device], (Kind.COPY,))] = _BUCKET_AT["copies"]
        places[communicates(trace)[device]] = _BUCKET_AT["communication"]
        row_line[device] = places
        lines: dict[Line, LineTime] = {}
        taken = trace.duration[device]
        alone = np.ones(len(device), np.bool_)
        alone[list(shared)] = False
        for number in np.unique(places[places >= 0]).tolist():
            one = self._line(lines, self.known[number])
            one.device_ns = float(taken[(places == number) & ~is_backward & alone].sum())
            one.backward_ns = float(taken[(places == number) & is_backward & alone].sum())
        for at, numbers in shared.items():
            for number in numbers:
                one = self._line(lines, self.known[number])
                one.shared = True
                part = float(taken[at]) / len(numbers)
                if is_backward[at]:
                    one.backward_ns += part
                else:
                    one.device_ns += part
        device_ns = {name: float(taken[places == at].sum()) for name, at in _BUCKET_AT.items()}
        cpu_ns = self._host(lines, with_device=bool(len(device)))
        callers = self._callers(device, places) if len(device) else self._op_callers()
        return Attribution(
            lines=lines,
            device_ns=device_ns,
            cpu_ns=cpu_ns,
            total_device_ns=float(taken.sum()),
            row_line=row_line,
            known=self.known,
            trace=trace,
            spans=self.spans,
            clock=self.clock,
            places=self._places,
            callers=callers,
        )

    def _op_callers(self) -> dict[str, list[Line]]:
        rows = outermost(self.trace, self.trace.of(Kind.OP))
        return self._callers(rows, self._places(rows)[0])

    def _from_compiled(self, calls: Ints, places: Ints) -> dict[int, list[int]]:
        """Gives what a compiled graph launched its own lines; those that have several, by their positions."""
        if not self.compiled:
            return {}
        numbers = {line: number for number, line in enumerate(self.known)}
        shared: dict[int, list[int]] = {}
        for at, row in enumerate(calls.tolist()):
            while row >= 0 and row not in self.compiled:
                row = int(self.origins.inside[row])
            if row < 0:
                continue
            own = []
            for origin in self.compiled[row]:
                number = numbers.setdefault(origin.line, len(self.known))
                if number == len(self.known):
                    self.known.append(origin.line)
                self.functions.setdefault(origin.line, origin.function)
                own.append(number)
            places[at] = own[0]
            if len(own) > 1:
                shared[at] = own
        return shared

    def _callers(self, rows: Ints, places: Ints) -> dict[str, list[Line]]:
        trace, known = self.trace, self.known
        there = places >= 0
        # Name and line as one number, so that each pair is counted once.
        pairs, at = np.unique(trace.name[rows[there]] * len(known) + places[there], return_inverse=True)
        taken = np.bincount(at, trace.duration[rows[there]], len(pairs))
        found: dict[str, list[Line]] = {}
        for pair in pairs[np.argsort(-taken, kind="stable")].tolist():
            name, line = divmod(pair, len(known))
            found.setdefault(trace.names[name], []).append(known[line])
        return found

    def _line(self, lines: dict[Line, LineTime], line: Line) -> LineTime:
        return lines.setdefault(line, LineTime(self.functions.get(line, "")))

    def _places(self, rows: Ints) -> tuple[Ints, Mask]:
        """For rows on the host a line or a bucket, and whether they are a derivative's; rows may be -1."""
        trace = self.trace
        there = rows >= 0
        safe = np.where(there, rows, 0)
        origin, backward = self.origins.of(rows)
        found = self._lines_at(np.where(there, origin, 0))
        found[found == NO_STACK] = _BUCKET_AT["unattributed"]
        engine = np.array([self._in_engine(row) for row in safe.tolist()], np.bool_)
        found[(found == _BUCKET_AT["unattributed"]) & engine] = _BUCKET_AT["autograd"]
        for name, ranges in (("optimizer", self.optimizing), ("loading", self.loading)):
            for lane, open_ in ranges.items():
                here = (trace.lane[safe] == lane) & open_.holds(trace.start[safe])
                found[here & ~backward] = _BUCKET_AT[name]
        found[~there] = _BUCKET_AT["unattributed"]
        return found, backward

    def _lines_at(self, rows: Ints) -> Ints:
        trace = self.trace
        found = np.full(len(rows), NO_STACK)
        for lane in np.unique(trace.lane[rows]) if len(rows) else ():
            here = trace.lane[rows] == lane
            if self.threads[lane] >= 0:
                times = self.clock.to_log(trace.start[rows[here]])
                found[here] = self.spans.line_at(int(self.threads[lane]), times).lines
        return found

    def _in_engine(self, row: int) -> bool:
        while row >= 0:
            if int(self.trace.name[row]) in self.engine:
                return True
            row = int(self.origins.inside[row])
        return False

    def _host(self, lines: dict[Line, LineTime], with_device: bool) -> dict[str, float]:
        """The host's time by line; what stands on a line only because it waits there goes to its bucket."""
        for line, ns in self_times(self.spans).items():
            if ns > 0:
                self._line(lines, line).cpu_ns = ns * self.scales.get(line, 1.0)
        buckets = dict.fromkeys(BUCKETS, 0.0)
        for name, ranges in (("optimizer", self.optimizing), ("loading", self.loading)):
            for lane, open_ in ranges.items():
                self._move(lines, lane, open_, buckets, name)
        self._move_derivatives(lines, buckets, with_device)
        buckets["unattributed"] = self._nobodys()
        return buckets

    def _nobodys(self) -> float:
        """The main thread's time in which no code of the program's own was running, or called what ran."""
        main = main_thread(self.trace)
        thread = int(self.threads[main]) if main >= 0 else -1
        return float(
            sum(
                (one.ends - one.starts)[one.stacks == NO_STACK].sum()
                for one in self.spans.threads
                if one.native_id == thread
            )
        )

    def _move(
        self, lines: dict[Line, LineTime], lane: int, open_: Intervals, buckets: dict[str, float], name: str
    ) -> None:
        """From the line that called it: lines of the program's own inside keep their time."""
        thread = int(self.threads[lane])
        callers = self.spans.line_at(thread, self.clock.to_log(open_.start)).lines
        for line, ns in self._overlap(thread, open_, set(callers.tolist()) - {NO_STACK}).items():
            buckets[name] += self._take(lines, line, ns)

    def _overlap(self, thread: int, open_: Intervals, numbers: set[int]) -> dict[Line, float]:
        """How long each of these lines was the innermost while ranges were open."""
        ours = Intervals(self.clock.to_log(open_.start), self.clock.to_log(open_.end))
        stacks = self.spans.stacks
        line_ids = np.asarray(stacks.line_ids)
        found: dict[Line, float] = {}
        for one in self.spans.threads:
            if one.native_id != thread or not len(one.starts):
                continue
            shared = ours.length_before(one.ends) - ours.length_before(one.starts)
            own = np.where(one.stacks >= 0, line_ids[np.maximum(one.stacks, 0)], NO_STACK)
            for number in numbers:
                ns = float(shared[own == number].sum())
                found[stacks.lines[number]] = found.get(stacks.lines[number], 0.0) + ns
        return found

    def _take(self, lines: dict[Line, LineTime], line: Line, ns: float) -> float:
        one = self._line(lines, line)
        taken = min(ns * self.scales.get(line, 1.0), one.cpu_ns)
        one.cpu_ns -= taken
        return taken

    def _move_derivatives(
        self, lines: dict[Line, LineTime], buckets: dict[str, float], with_device: bool
    ) -> None:
        """From the line that asked for them to the lines of their operators.

        Where a device computes, a derivative on the host is launching: it stays `autograd`, and the column of
        derivatives is the device's.
        """
        trace = self.trace
        rows, operators = self.origins.derivatives()
        if not len(rows):
            return
        callers, targets = self._lines_at(rows), self._lines_at(operators)
        known = self.spans.stacks.lines
        for caller in np.unique(callers).tolist():
            here = callers == caller
            whole = float(trace.duration[rows[here]].sum())
            own, moved = trace.duration[rows[here]].astype(np.float64), whole
            # On a thread of autograd's own no line of the program waits in this very place.
            if caller != NO_STACK:
                own = untouched(trace, rows[here], self.longer.get(known[caller], 0.0), self.touch_ns)
                moved = self._take(lines, known[caller], whole)
            parts = own * (moved / (own.sum() or 1.0))
            for target, ns in zip(targets[here].tolist(), parts.tolist(), strict=True):
                if with_device or target == NO_STACK:
                    buckets["autograd"] += ns
                else:
                    self._line(lines, known[target]).backward_ns += ns
