"""One step as a traced window shows it: its parts, what ran how long, its clock, its longest chain.

On a device times are as traced. On the host tracing makes everything longer: what it added has been taken off
where that can be told (`pace.untraced`), and shares are rescaled to the length that a step really has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trackside.profiling.attribution import Attribution
from trackside.profiling.line_stacks import Line
from trackside.profiling.roofline import Placed, placed
from trackside.records.profile import Bound, Breakdown, Kernel, LaneSpans
from trackside.trace.critical_path import StepKind, critical_path
from trackside.trace.dependencies import task_graph
from trackside.trace.model import Ints, Kind, Trace
from trackside.trace.schedule import schedule
from trackside.trace.steps import Steps, as_run
from trackside.trace.timeline import (
    breakdown,
    communicates,
    main_thread,
    outermost,
    ran_longest,
    waits_for_input,
)

__all__ = ["MOST_KERNELS", "StepView", "device_name"]

MOST_KERNELS = 200
# What a page can draw, and a person look at.
_MOST_SPANS, _MOST_LANES = 3000, 12
_NAME_LENGTH = 500
_MOST_LINES = 5
# A chain through more steps says the same.
_MOST_PATH_STEPS = 20
_SHOWN = (Kind.OP, Kind.RUNTIME, Kind.KERNEL, Kind.COPY, Kind.FILL, Kind.ANNOTATION)
_WAITING = ("Synchronize", "cudaEventQuery")


@dataclass(frozen=True)
class StepView:
    """A trace, its steps, and how long a step really takes."""

    trace: Trace
    steps: Steps
    step_ms: float

    @cached_property
    def ran(self) -> Steps:
        return as_run(self.trace, self.steps)

    @property
    def begin(self) -> int:
        return int(self.ran.begin[0])

    @property
    def end(self) -> int:
        return int(self.ran.end[-1])

    @property
    def on_device(self) -> bool:
        return bool(len(self.trace.on_device))

    @property
    def _host_scale(self) -> float:
        """Milliseconds of a step for each nanosecond of the window."""
        return self.step_ms / max(1, self.end - self.begin)

    def breakdown(self) -> Breakdown:
        """A step's parts; their sum is `step_ms`."""
        whole = breakdown(self.trace, self.begin, self.end)
        parts = {
            name: getattr(whole, name) * self._host_scale
            for name in ("compute", "communication", "copy", "host", "idle")
        }
        if self.on_device:
            # The device's own times are true; what tracing adds is the host's.
            busy = {
                name: getattr(whole, name) / 1e6 / len(self.steps)
                for name in ("compute", "communication", "copy")
            }
            least = min(1.0, self.step_ms / (sum(busy.values()) or 1.0))
            parts |= {name: least * ms for name, ms in busy.items()}
            left = max(0.0, self.step_ms - sum(parts[name] for name in busy))
            waiting = whole.idle / ((whole.idle + whole.host) or 1)
            parts |= {"host": left * (1 - waiting), "idle": left * waiting}
        return Breakdown.model_validate(parts)

    def communication_ms(self) -> list[float]:
        """Of each step, what it spent in collectives beside which nothing was computed."""
        scale = 1e-6 if self.on_device else self._slowdown_undone / 1e6
        return [
            breakdown(self.trace, begin, end).communication * scale
            for begin, end in zip(self.ran.begin.tolist(), self.ran.end.tolist(), strict=True)
        ]

    def kernels(
        self,
        attribution: Attribution | None,
        shown: dict[Line, str],
        ceilings: Mapping[str, float] | None = None,
    ) -> tuple[list[Kernel], int]:
        """What ran longest, and how many more there were.

        Args:
            attribution: tells which lines ran it.
            shown: `file:line` of lines.
            ceilings: measured speeds of this machine, to hold it against.
        """
        trace, steps = self.trace, len(self.steps)
        ran = ran_longest(trace, self.begin, self.end)
        at = placed(trace, self.begin, self.end, ceilings or {})
        total = sum(one.total_ns for one in ran) or 1
        collective = communicates(trace)
        found = []
        for number, one in enumerate(ran[:MOST_KERNELS], 1):
            on_device = self.on_device
            callers = attribution.callers.get(one.name, ()) if attribution is not None else ()
            found.append(
                Kernel(
                    id=f"k{number}",
                    name=one.name,
                    calls=one.calls / steps,
                    total_ms=one.total_ns / 1e6 / steps if on_device else one.total_ns * self._host_scale,
                    share=one.total_ns / (total if on_device else max(1, self.end - self.begin)),
                    median_us=one.median_ns / 1e3 * (1.0 if on_device else self._slowdown_undone),
                    bound=self._bound(one.first, bool(collective[one.first]), at.get(one.name)),
                    bytes=at[one.name].bytes / steps if one.name in at else None,
                    flops=at[one.name].flops / steps if one.name in at else None,
                    roof_share=at[one.name].roof_share if one.name in at else None,
                    launch=self._launch(one.first),
                    lines=[shown[line] for line in callers[:_MOST_LINES] if line in shown],
                )
            )
        return found, max(0, len(ran) - MOST_KERNELS)

    @property
    def _slowdown_undone(self) -> float:
        return self._host_scale * 1e6 * len(self.steps)

    def _bound(self, row: int, collective: bool, at: Placed | None) -> Bound:
        if collective:
            return "communication"
        if self.trace.kind[row] in (Kind.COPY, Kind.FILL) or self.trace.name_of(row) == "aten::copy_":
            return "copy"
        return at.bound if at is not None else "unknown"

    def _launch(self, row: int) -> dict[str, Any]:
        detail = int(self.trace.detail[row])
        if self.trace.kind[row] != Kind.KERNEL or not 0 <= detail < len(self.trace.launches):
            return {}
        return {name: value for name, value in self.trace.launches[detail]._asdict().items() if value != -1}

    def timeline(self) -> list[LaneSpans]:
        """The step of middle length, lane by lane."""
        lengths = self.ran.end - self.ran.begin
        middle = int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
        begin, end = int(self.ran.begin[middle]), int(self.ran.end[middle])
        trace = self.trace
        rows = trace.of(*_SHOWN)
        rows = rows[(trace.start[rows] < end) & (trace.end[rows] > begin)]
        lanes, counts = np.unique(trace.lane[rows], return_counts=True)
        main = main_thread(trace)
        busiest = lanes[np.argsort(-counts, kind="stable")][:_MOST_LANES].tolist()
        order = sorted(busiest, key=lambda lane: (trace.lanes[lane].device, lane != main, lane))
        return [self._lane(lane, rows[trace.lane[rows] == lane], begin, end, main) for lane in order]

    def _lane(self, lane: int, rows: Ints, begin: int, end: int, main: int) -> LaneSpans:
        trace = self.trace
        longest = np.sort(rows[np.argsort(-trace.duration[rows], kind="stable")[:_MOST_SPANS]])
        collective = communicates(trace)
        # As long as in the trace that was handed in: what lies where in a step is not to be rescaled.
        spans = []
        for row in longest.tolist():
            start, stop = max(begin, int(trace.start[row])), min(end, int(trace.end[row]))
            name = trace.name_of(row)[:_NAME_LENGTH]
            kind = self._what(row, bool(collective[row]))
            spans.append(((start - begin) / 1e3, (stop - start) / 1e3, kind, name))
        place = trace.lanes[lane]
        if place.device >= 0:
            name = (
                f"stream {place.thread}" if place.device == 0 else f"GPU {place.device} stream {place.thread}"
            )
        elif lane == main:
            name = "main thread"
        else:
            name = place.name or f"thread {place.thread}"
        return LaneSpans(name=name, device=place.device >= 0, spans=spans, left_out=len(rows) - len(longest))

    def _what(self, row: int, collective: bool) -> str:
        kind, name = self.trace.kind[row], self.trace.name_of(row)
        if collective:
            return "communication"
        if kind in (Kind.COPY, Kind.FILL) or (not self.on_device and row in self._copies):
            return "copy"
        if kind == Kind.KERNEL or (kind == Kind.OP and not self.on_device):
            return "compute"
        if kind == Kind.ANNOTATION:
            return "idle" if waits_for_input(name) else "annotation"
        if kind == Kind.RUNTIME and name.endswith(_WAITING):
            return "wait"
        return "host"

    @cached_property
    def _copies(self) -> frozenset[int]:
        """Operators of the host that only copy, and are no other operator's part."""
        rows = outermost(self.trace, self.trace.of(Kind.OP))
        return frozenset(rows[self.trace.named("aten::copy_")[rows]].tolist())

    def critical_path(self) -> dict[str, float]:
        """By what the longest chain runs on, its share.

        Raises:
            ValueError: times in the trace contradict each other.
        """
        first = max(0, (len(self.steps) - _MOST_PATH_STEPS) // 2)
        some = slice(first, first + _MOST_PATH_STEPS)
        chosen = Steps(self.steps.begin[some], self.steps.end[some], self.steps.found_by)
        traced = task_graph(self.trace, chosen)
        if not traced.graph.task_count:
            return {}
        path = critical_path(traced.graph, schedule(traced.graph))
        collective = communicates(self.trace)
        shares: dict[str, float] = {}
        for kind, index, length in zip(
            path.kind.tolist(), path.index.tolist(), path.length_ns.tolist(), strict=True
        ):
            if kind == StepKind.TASK:
                row = int(traced.row[index])
                what = self._what(row, bool(collective[row]))
                name = "device" if self.on_device and what == "compute" else what
            else:
                name = "host" if kind == StepKind.GAP else "launch"
            shares[name] = shares.get(name, 0.0) + length / (path.total_ns or 1)
        return dict(sorted(shares.items(), key=lambda item: -item[1]))


def device_name(trace: Trace) -> str:
    """`cpu`, or the GPU's name as the profiler wrote it down."""
    if not len(trace.on_device):
        return "cpu"
    number = trace.lanes[int(trace.lane[trace.on_device[0]])].device
    known = trace.facts.get("deviceProperties")
    for one in known if isinstance(known, list) else ():
        if isinstance(one, dict) and one.get("id", 0) == number and one.get("name"):
            return str(one["name"])
    return f"GPU {number}"
