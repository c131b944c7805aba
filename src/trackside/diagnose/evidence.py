"""What rules look at: the traced steps at their true pace, lines, sources, and what this machine can do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

import numpy as np

from trackside.diagnose.places import Places
from trackside.diagnose.source import Source, read_source
from trackside.diagnose.workbench import Ratio, Workbench
from trackside.profiling.captured import Captured
from trackside.profiling.fresh_memory import MOST_TOUCH_NS
from trackside.profiling.line_stacks import Line
from trackside.profiling.pace import at_pace, fresh_memory, lightest, typical
from trackside.profiling.rank_times import RanksSeen
from trackside.profiling.roofline import kernel_works
from trackside.trace.dependencies import TracedGraph, task_graph
from trackside.trace.edits import Edit, Remove, Scale, ShrinkGaps
from trackside.trace.graph import TaskGraph
from trackside.trace.intervals import merged
from trackside.trace.links import launch_of
from trackside.trace.model import Ints, Kind, OpInputs, Trace
from trackside.trace.schedule import Schedule, schedule
from trackside.trace.steps import Steps, find_steps, last_steps
from trackside.trace.timeline import main_thread, outermost

__all__ = ["Evidence", "Machine", "gather"]

_NO_INPUTS = OpInputs((), (), ())
# Rules look at so many rows of a trace, or at five steps if those are more: enough for seconds of looking.
_MOST_ROWS = 8000


@dataclass(frozen=True)
class Machine:
    """What the program ran on, as far as rules ask."""

    cpus: int = 1
    """That it may use."""
    threads: int | None = None
    """Of torch in the program; None where that is not known."""
    memory_free: float | None = None
    """Share of the memory that was free while it ran."""
    ceilings: Mapping[str, float] = field(default_factory=dict)
    """Measured speeds by name: `cpu.memory.copy`, in bytes and operations per second."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """One program's traced steps."""

    trace: Trace
    steps: Steps
    traced: TracedGraph
    """At the pace of the untraced window, every step as steps usually are."""
    as_traced: TracedGraph
    """The same tasks with the times of the trace."""
    light: TaskGraph | None
    """`traced` with the quickest host that there may have been; None where there is no doubt about it."""
    places: Places
    sources: Mapping[str, Source]
    command: tuple[str, ...]
    """What was run: the script and its arguments."""
    machine: Machine = Machine()
    workbench: Workbench | None = None
    step_spread: float = 0.0
    """Relative interquartile range of the untraced steps."""
    ranks: RanksSeen = field(default_factory=RanksSeen)
    """Of a program that runs as several; all else here is about the first."""
    counters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What the hardware counted in one run of a kernel, by the kernel's name; empty unless asked for."""

    # -- the traced steps ----------------------------------------------------------------------------

    @cached_property
    def before(self) -> Schedule:
        return schedule(self.traced.graph)

    @cached_property
    def before_light(self) -> Schedule | None:
        return None if self.light is None else schedule(self.light)

    @cached_property
    def before_as_traced(self) -> Schedule:
        return schedule(self.as_traced.graph)

    @property
    def step_ns(self) -> float:
        return self.before.step_ns or 1.0

    @cached_property
    def has_device(self) -> bool:
        return bool(len(self.trace.on_device))

    @cached_property
    def least_bytes(self) -> dict[str, float]:
        """Bytes that a run of a kernel has to move at least, by its name: the mean of the known ones."""
        rows = self.trace.of(Kind.KERNEL)
        runs: dict[str, list[float]] = {}
        for row, work in kernel_works(self.trace, rows).items():
            runs.setdefault(self.trace.name_of(row), []).append(work.bytes)
        return {name: sum(many) / len(many) for name, many in runs.items()}

    @cached_property
    def _in_steps(self) -> Ints:
        rows = self.trace.of(Kind.OP)
        begin, end = int(self.steps.begin[0]), int(self.steps.end[-1])
        found: Ints = rows[(self.trace.start[rows] >= begin) & (self.trace.end[rows] <= end)]
        return found

    def ops(self, *names: str) -> Ints:
        """Operators of the steps, of these names if any are given, in order of time."""
        rows = self._in_steps
        return rows[self.trace.named(*names)[rows]] if names else rows

    def annotations(self, prefix: str) -> Ints:
        """Ranges that begin in the steps and whose name begins so.

        An optimizer's own range ends a little after the step that it ends.
        """
        wanted = [i for i, name in enumerate(self.trace.names) if name.startswith(prefix)]
        rows = np.flatnonzero(np.isin(self.trace.name, wanted) & (self.trace.kind == Kind.ANNOTATION))
        begin, end = int(self.steps.begin[0]), int(self.steps.end[-1])
        found: Ints = rows[(self.trace.start[rows] >= begin) & (self.trace.start[rows] < end)]
        return found

    def within(self, rows: Ints, ranges: Ints) -> Ints:
        """Those rows that lie in one of the ranges, on its lane."""
        kept = np.zeros(len(rows), np.bool_)
        trace = self.trace
        for one in ranges.tolist():
            kept |= (
                (trace.lane[rows] == trace.lane[one])
                & (trace.start[rows] >= trace.start[one])
                & (trace.end[rows] <= trace.end[one])
            )
        return rows[kept]

    def inputs(self, row: int) -> OpInputs:
        number = int(self.trace.detail[row])
        return self.trace.inputs[number] if number >= 0 else _NO_INPUTS

    def shape(self, row: int, place: int = 0) -> tuple[int, ...]:
        """The shape of one of an operator's inputs; () where it has none."""
        shapes = self.inputs(row).shapes
        return shapes[place] if place < len(shapes) else ()

    def type(self, row: int, place: int = 0) -> str:
        types = self.inputs(row).types
        return types[place] if place < len(types) else ""

    @cached_property
    def outer(self) -> Ints:
        """For every row the outermost operator around it, or itself."""
        found = np.arange(len(self.trace))
        inside = self.places.inside
        for row in np.flatnonzero(inside >= 0).tolist():
            found[row] = found[inside[row]]
        return found

    def name(self, row: int) -> str:
        return self.trace.name_of(row)

    def under(self, row: int, prefix: str) -> bool:
        """Whether an operator around a row has a name that begins so."""
        row = int(self.places.inside[row])
        while row >= 0:
            if self.name(row).startswith(prefix):
                return True
            row = int(self.places.inside[row])
        return False

    @cached_property
    def in_backward(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which rows belong to derivatives."""
        engine = [i for i, name in enumerate(self.trace.names) if name.startswith("autograd::engine")]
        found = np.isin(self.trace.name, engine)
        inside = self.places.inside
        for row in np.flatnonzero(inside >= 0).tolist():
            found[row] |= found[inside[row]]
        return found

    @cached_property
    def forward_ops(self) -> list[int]:
        """Outermost operators of the main thread, in order, without derivatives, optimizer and loading."""
        trace = self.trace
        rows = np.intersect1d(outermost(trace, trace.of(Kind.OP)), self.ops())
        rows = rows[(trace.lane[rows] == main_thread(trace)) & ~self.in_backward[rows]]
        for prefix in ("Optimizer.", "enumerate(DataLoader)#"):
            rows = np.setdiff1d(rows, self.within(rows, self.annotations(prefix)))
        found: list[int] = rows.tolist()
        return found

    @cached_property
    def derivatives(self) -> dict[int, list[int]]:
        """For an operator the outermost rows of its derivative."""
        forward, inside = self.places.forward, self.places.inside
        rows = self.ops()
        rows = rows[forward[rows] >= 0]
        around = np.where(inside[rows] >= 0, forward[inside[rows]], -1)
        found: dict[int, list[int]] = {}
        for row in rows[around != forward[rows]].tolist():
            found.setdefault(int(forward[row]), []).append(row)
        return found

    @cached_property
    def by_caller(self) -> dict[Line, list[int]]:
        """The forward operators by the line that was running."""
        return _by_place(self.forward_ops, self.places.caller)

    # -- time and edits ------------------------------------------------------------------------------

    @cached_property
    def _below(self) -> dict[int, list[int]]:
        """For each row what lies directly in it, and what it launched on a device."""
        found: dict[int, list[int]] = {}
        inside = self.places.inside
        rows = np.flatnonzero(inside >= 0)
        above = [*inside[rows].tolist(), *launch_of(self.trace, self.trace.on_device).tolist()]
        for row, holder in zip([*rows.tolist(), *self.trace.on_device.tolist()], above, strict=True):
            if holder >= 0:
                found.setdefault(holder, []).append(row)
        return found

    def closure(self, rows: Iterable[int] | Ints) -> Ints:
        """Rows with all that runs inside them, and what they launch on a device."""
        found: set[int] = set()
        waiting = [int(row) for row in rows]
        while waiting:
            row = waiting.pop()
            if row not in found:
                found.add(row)
                waiting += self._below.get(row, ())
        return np.array(sorted(found), np.int64)

    @cached_property
    def _tasks_of_row(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for task, row in enumerate(self.traced.row.tolist()):
            found.setdefault(row, []).append(task)
        return found

    def tasks(self, rows: Iterable[int] | Ints) -> Ints:
        """Tasks of rows and of all inside them."""
        known = self._tasks_of_row
        return np.array(
            [task for row in self.closure(rows).tolist() for task in known.get(row, ())], np.int64
        )

    def cost(self, rows: Iterable[int] | Ints) -> float:
        """Nanoseconds of a step that rows take, at the untraced pace: on the host or, if longer, a device."""
        host, device = self._apart(self.tasks(rows))
        taken = self.traced.graph.duration_ns
        return float(max(taken[host].sum(), taken[device].sum())) / max(1, len(self.steps))

    def host_cost(self, rows: Iterable[int] | Ints) -> float:
        """Nanoseconds of a step that rows take on the host, at the untraced pace."""
        host, _ = self._apart(self.tasks(rows))
        return float(self.traced.graph.duration_ns[host].sum()) / max(1, len(self.steps))

    @cached_property
    def _task_on_device(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.isin(self.traced.row, self.trace.on_device)

    def _apart(self, tasks: Ints) -> tuple[Ints, Ints]:
        """Those on the host, and those on a device."""
        there = self._task_on_device[tasks]
        return tasks[~there], tasks[there]

    def share(self, rows: Iterable[int] | Ints) -> float:
        return self.cost(rows) / self.step_ns

    def without(self, rows: Iterable[int] | Ints, python: float = 1.0) -> list[Edit]:
        """Rows, all inside them, and so much of their lines' own Python before them are gone."""
        return self.shrunk(rows, 0.0, 1.0 - python)

    def shrunk(self, rows: Iterable[int] | Ints, factor: float | Ratio, python: float = 1.0) -> list[Edit]:
        """Rows and all inside them take `factor` of their time, their lines' Python before them `python`.

        Args:
            factor: one for host and device, or both of a ratio; of a ratio neither makes anything longer.
        """
        rows = np.fromiter(rows, np.int64)
        edits = self._scaled(self.tasks(rows), factor)
        if python < 1.0:
            outer = np.unique(self.outer[rows])
            lines = {line for row in outer.tolist() if (line := self.places.caller(row)) is not None}
            edits += self.python_shrunk(lines, python, set(outer.tolist()))
        return edits

    def _scaled(self, tasks: Ints, factor: float | Ratio) -> list[Edit]:
        if not isinstance(factor, Ratio):
            factor = Ratio(factor, factor)
        parts = zip(self._apart(tasks), (factor.host, factor.computing), strict=True)
        return [Scale(own, min(1.0, one)) if one > 0 else Remove(own) for own, one in parts if len(own)]

    def python_shrunk(self, lines: set[Line], factor: float, before: set[int] | None = None) -> list[Edit]:
        """What these lines take in Python alone, between operators, times a factor.

        Args:
            before: only ahead of these operators; of all, if left out.
        """
        by_factor: dict[float, list[int]] = {}
        for row, parts in self.places.gaps.items():
            if before is not None and row not in before:
                continue
            share = sum(part.share for part in parts if part.line in lines)
            if share > 0 and row in self._first_task:
                left = round(1 - share * (1 - min(1.0, factor)), 3)
                by_factor.setdefault(max(0.0, left), []).append(self._first_task[row])
        return [ShrinkGaps(tasks, left) for left, tasks in by_factor.items()]

    def python_ns(self, lines: set[Line]) -> float:
        """Nanoseconds of a step that these lines take in Python alone."""
        total = 0.0
        for row, parts in self.places.gaps.items():
            task = self._first_task.get(row)
            if task is not None:
                share = sum(part.share for part in parts if part.line in lines)
                total += share * float(self.traced.graph.gap_ns[task])
        return total / max(1, len(self.steps))

    def ranges_shrunk(self, ranges: Ints, factor: float | Ratio) -> list[Edit]:
        """All that a thread does in these ranges, operators and Python, times a factor."""
        edits = self._scaled(self.tasks(self.within(self.ops(), ranges)), factor)
        python = min(1.0, factor.host if isinstance(factor, Ratio) else factor)
        by_factor: dict[float, list[int]] = {}
        for task, share in self._gaps_in(ranges):
            by_factor.setdefault(round(1 - share * (1 - python), 3), []).append(task)
        return edits + [ShrinkGaps(group, max(0.0, left)) for left, group in by_factor.items()]

    def ranges_ns(self, ranges: Ints) -> float:
        """Nanoseconds of a usual step that a thread spends in these ranges."""
        gaps = sum(share * float(self.traced.graph.gap_ns[task]) for task, share in self._gaps_in(ranges))
        return self.cost(self.within(self.ops(), ranges)) + gaps / max(1, len(self.steps))

    def _gaps_in(self, ranges: Ints) -> list[tuple[int, float]]:
        """Tasks with a gap before them that lies in the ranges, and how much of it does."""
        begin = int(self.steps.begin[0])
        lanes = {
            int(lane): merged(self.trace.start[own] - begin, self.trace.end[own] - begin)
            for lane in np.unique(self.trace.lane[ranges])
            if len(own := ranges[self.trace.lane[ranges] == lane])
        }
        graph, traced = self.traced.graph, self.traced
        found = []
        for task in np.flatnonzero(self.as_traced.graph.gap_ns > 0).tolist():
            inside = lanes.get(int(graph.resource[task]))
            if inside is None:
                continue
            previous = int(graph.previous[task])
            since = int(traced.end_ns[previous]) if previous >= 0 else 0
            until = int(traced.start_ns[task])
            length = inside.within(since, until).total if until > since else 0
            if length:
                found.append((task, length / (until - since)))
        return found

    @cached_property
    def _first_task(self) -> dict[int, int]:
        return {row: tasks[0] for row, tasks in self._tasks_of_row.items()}

    # -- lines ---------------------------------------------------------------------------------------

    def by_line(self, rows: Iterable[int] | Ints) -> dict[Line, list[int]]:
        """Rows by the line that ran them; rows without a line are left out."""
        return _by_place(map(int, rows), self.places.line)

    def source(self, line: Line | None) -> Source | None:
        return self.sources.get(line.file) if line is not None else None

    @cached_property
    def step_line(self) -> Line | None:
        """The line that steps the optimizer, which stands in the loop of steps."""
        for row in self.annotations("Optimizer.step#").tolist():
            line = self.places.caller(row)
            if line is not None:
                return line
        return None

    def beside(self, line: Line) -> int | None:
        """For looking up loops of a line: where the loop of steps is, if it is in that file."""
        step = self.step_line
        return step.line if step is not None and step.file == line.file else None

    def turns_in_a_step(self, line: Line, head: int, rows: Iterable[int]) -> bool:
        """Whether a loop goes round within a step, and is not the one that goes from step to step.

        Of layers that follow each other in a model the program has one line, like that of a loop's turns.
        Where an optimizer steps, `beside` leaves out the loop of steps; without one it is told by what ran.

        Args:
            line: in the loop.
            head: the line on which the loop begins.
            rows: operators of that line.
        """
        rows = list(rows)
        if self.step_line is not None:
            return True
        above = Line(line.file, head)
        if above != line:
            seen = sum(any(part.line == above for part in self.places.gaps.get(row, ())) for row in rows)
            if seen:
                return seen > len(self.steps)
        # A step that is nothing but the turn of a loop has no operator beside those of its line.
        return len(self.by_caller.get(line, ())) < len(self.forward_ops)

    @cached_property
    def lines(self) -> list[Line]:
        """Lines that ran in the steps, by the log."""
        seen = {part.line for parts in self.places.gaps.values() for part in parts}
        seen |= {line for row in self.ops().tolist() if (line := self.places.caller(row)) is not None}
        return sorted(seen)


def _by_place(rows: Iterable[int], place: Callable[[int], Line | None]) -> dict[Line, list[int]]:
    found: dict[Line, list[int]] = {}
    for row in rows:
        if (line := place(row)) is not None:
            found.setdefault(line, []).append(row)
    return found


def gather(
    captured: Captured,
    command: Iterable[str] = (),
    machine: Machine | None = None,
    workbench: Workbench | None = None,
    ranks: RanksSeen | None = None,
    counters: Mapping[str, Mapping[str, float]] | None = None,
) -> Evidence | None:
    """The evidence of a capture; None where no step was traced."""
    trace = captured.traced
    if trace is None or not len(trace):
        return None
    steps = captured.steps if captured.steps is not None else find_steps(trace)
    if not len(steps):
        return None
    trace, steps = last_steps(trace, steps, _MOST_ROWS)
    first = captured.window("A")
    files = {place.file for place in captured.attribution.known} if captured.attribution else set()
    kept = captured.sources.lines
    sources = {file: found for file in sorted(files) if (found := read_source(file, kept.get(file)))}
    as_traced = task_graph(trace, steps)
    usual = typical(as_traced, trace, steps)
    on_host = np.flatnonzero(~np.isin(usual.row, trace.on_device))
    step_ns = _true_step_ns(captured, bool(len(trace.on_device)))
    taken = captured.allocated
    fresh = fresh_memory(as_traced, trace, taken, int(steps.begin[0])) if taken is not None else None
    touch_ns = captured.touch_ns.get("T", MOST_TOUCH_NS)
    return Evidence(
        trace=trace,
        steps=steps,
        traced=usual if step_ns is None else at_pace(usual, on_host, step_ns, fresh, touch_ns),
        as_traced=as_traced,
        light=None if step_ns is None or not len(trace.on_device) else lightest(usual, on_host, step_ns),
        places=Places(trace, steps, captured.attribution),
        sources=sources,
        command=tuple(command),
        machine=machine or Machine(),
        workbench=workbench,
        step_spread=first.spread if first is not None else 0.0,
        ranks=ranks or RanksSeen(),
        counters=counters or {},
    )


def _true_step_ns(captured: Captured, has_device: bool) -> float | None:
    """The untraced step. Without a device the median: the mean has the machine's hiccups in it."""
    first = captured.window("A")
    if first is None:
        return None
    times = captured.step_times_ms.get("A")
    return 1e6 * (first.step_ms if has_device or not times else median(times))
