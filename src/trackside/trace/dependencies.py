"""From a trace to its task graph: who launched what, who waited for whom.

Host threads are cut into the pieces in which one operator or call was the innermost; between two pieces lies
the program's own Python, a gap. What a trace does not say outright is read from its times: a call that
returns right when an earlier kernel ends has waited for it; a thread that falls silent until another is done
has waited for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trackside.trace.graph import EdgeKind, TaskGraph
from trackside.trace.intervals import merged
from trackside.trace.links import launch_of
from trackside.trace.model import Ints, Kind, Trace
from trackside.trace.steps import Steps
from trackside.trace.timeline import collective_ranges, main_thread

__all__ = ["TracedGraph", "task_graph"]

# A call that a kernel's end has let go returns within this, and takes at least this long.
_RETURNS_NS, _WAITS_NS = 40_000, 10_000
# A launch waits only where the device has taken as many ahead as it can: 1024 (CUDA), or fewer where one
# takes several places. Whoever is so far ahead is not what the device waits for, so that a launch which was
# long for another reason changes nothing.
_QUEUE = 200
# Clocks of host and device differ by less; a kernel that seems to begin sooner before its launch is an error.
_MOST_SKEW_NS = 1_000_000
# What the runtime calls recording an event and having a stream wait for it.
_RECORDS, _STREAM_WAITS = ("EventRecord",), ("StreamWaitEvent",)
# A silence of a thread beside the main one that is longer is waiting, not work.
_SILENCE_NS = 50_000
# Of a silence of the main thread so much must be another thread's work for it to count as waiting.
_BUSY_MEANWHILE = 0.5


@dataclass(frozen=True)
class TracedGraph:
    """A task graph with where its tasks come from."""

    graph: TaskGraph
    row: Ints
    """The trace's row of each task; a row on a host may be several, around those inside it."""
    start_ns: Ints
    """As traced, from the window's beginning."""
    end_ns: Ints

    def tasks_of(self, rows: Sequence[int] | Ints) -> Ints:
        """All tasks that come from these rows."""
        found: Ints = np.flatnonzero(np.isin(self.row, rows))
        return found


class _Edges:
    def __init__(self) -> None:
        self.source: list[int] = []
        self.target: list[int] = []
        self.lag: list[int] = []
        self.kind: list[int] = []

    def add(self, source: int, target: int, lag: int, kind: EdgeKind = EdgeKind.START_AFTER) -> None:
        self.source.append(source)
        self.target.append(target)
        self.lag.append(max(0, lag))
        self.kind.append(kind)


def task_graph(trace: Trace, steps: Steps) -> TracedGraph:
    """The graph of the time from the first step's beginning to the last one's end.

    Raises:
        ValueError: there is no step.
    """
    if not len(steps):
        raise ValueError("a graph needs at least one step")
    begin, end = int(steps.begin[0]), int(steps.end[-1])
    host = _host_pieces(trace, begin, end)
    device = trace.on_device
    calls = launch_of(trace, device)
    # What was launched inside the window; its end may lie behind it.
    inside = (
        (calls >= 0)
        & (trace.start[np.maximum(calls, 0)] >= begin)
        & (trace.start[np.maximum(calls, 0)] < end)
    )
    device, calls = device[inside], calls[inside]
    skew = _skew(trace, device, calls)
    row = np.concatenate((host[:, 0], device))
    start = np.concatenate((host[:, 1], trace.start[device] + skew))
    stop = np.concatenate((host[:, 2], trace.end[device] + skew))
    lane = trace.lane[row].astype(np.int64)
    builder = _Builder(trace, row, start, stop, lane, len(host), begin)
    builder.link_streams(calls)
    builder.link_launches(calls)
    builder.link_waits(calls)
    builder.link_threads(main_thread(trace))
    graph = TaskGraph.from_arrays(
        lane,
        builder.duration,
        gap_ns=builder.gap,
        order_by=start,
        source=builder.edges.source,
        target=builder.edges.target,
        lag_ns=builder.edges.lag,
        kind=builder.edges.kind,
        step_ends=builder.step_ends(steps, calls),
    )
    return TracedGraph(graph, row, start - begin, stop - begin)


def _skew(trace: Trace, device: Ints, calls: Ints) -> int:
    """How far the device's clock is behind: nothing begins before the call that launches it."""
    early = trace.start[calls] - trace.start[device]
    early = early[early < _MOST_SKEW_NS]
    return int(max(0, early.max(initial=0)))


def _host_pieces(trace: Trace, begin: int, end: int) -> Ints:
    """Row, start and end of every piece of a thread's time in which a row was the innermost."""
    rows = np.sort(np.concatenate((trace.of(Kind.OP, Kind.RUNTIME), collective_ranges(trace))))
    rows = rows[(trace.start[rows] >= begin) & (trace.end[rows] <= end)]
    pieces: list[tuple[int, int, int]] = []
    for lane in np.unique(trace.lane[rows]):
        here = rows[trace.lane[rows] == lane]
        _cut(here.tolist(), trace.start[here].tolist(), trace.end[here].tolist(), pieces)
    return np.array(pieces, np.int64).reshape(-1, 3)


def _cut(rows: list[int], starts: list[int], ends: list[int], pieces: list[tuple[int, int, int]]) -> None:
    """Rows of one thread in order of time; each open one goes on where the one inside it ends."""
    open_rows: list[tuple[int, int]] = []
    at = 0

    def close_until(time: int) -> None:
        nonlocal at
        while open_rows and open_rows[-1][1] <= time:
            row, end = open_rows.pop()
            if end > at:
                pieces.append((row, at, end))
                at = end

    for row, start, end in zip(rows, starts, ends, strict=True):
        close_until(start)
        if open_rows and start > at:
            pieces.append((open_rows[-1][0], at, start))
        at = start
        # One that outlasts what it began in is cut there: a thread does one thing at a time.
        open_rows.append((row, min(end, open_rows[-1][1]) if open_rows else end))
        if end == start:
            pieces.append((row, start, start))
            open_rows.pop()
    if ends:
        close_until(max(ends))


class _Queue(NamedTuple):
    """What was launched on a stream, in that order."""

    lane: int
    stream: int
    launched: Ints
    tasks: Ints

    def after(self, time: int) -> tuple[int, int]:
        """When the first behind a time was launched, and that task."""
        at = int(np.searchsorted(self.launched, time, "right"))
        return int(self.launched[at]), int(self.tasks[at])

    def before(self, time: int) -> tuple[int, int]:
        """When the last before a time was launched, and that task."""
        at = int(np.searchsorted(self.launched, time)) - 1
        return int(self.launched[at]), int(self.tasks[at])


class _Builder:
    """Durations, gaps and edges, as the traced times show them."""

    def __init__(
        self, trace: Trace, row: Ints, start: Ints, stop: Ints, lane: Ints, hosts: int, begin: int
    ) -> None:
        self.trace, self.row, self.start, self.stop, self.lane = trace, row, start, stop, lane
        self.hosts, self.begin = hosts, begin
        self.edges = _Edges()
        self.duration = stop - start
        self.gap = np.zeros(len(row), np.int64)
        self.before = np.full(len(row), -1)
        for one in np.unique(lane):
            tasks = np.flatnonzero(lane == one)
            tasks = tasks[np.argsort(start[tasks], kind="stable")]
            self.before[tasks[1:]] = tasks[:-1]
            if tasks[0] < hosts:
                self.gap[tasks[0]] = start[tasks[0]] - begin
                self.gap[tasks[1:]] = np.maximum(0, start[tasks[1:]] - stop[tasks[:-1]])
        self.held_until = np.where(self.before >= 0, stop[self.before], 0)
        """When what a task has to follow on the device was over."""
        self.held_by: dict[int, int] = {}
        """The edge of a task on the device that has to follow another stream last."""
        # Rows of calls that have a piece: the last of it is where a call returns.
        self.piece = {int(one): task for task, one in enumerate(row[:hosts])}

    def link_launches(self, calls: Ints) -> None:
        """A kernel starts after its launch, and after the one before it on its stream.

        Where the stream was free, the time since the launch is what launching takes. Where it was not, the
        device has taken the time since the kernel before: it needs a little to go from one to the next.
        """
        tasks = np.arange(self.hosts, len(self.row))
        returned = self.trace.end[calls]
        held = self.held_until[tasks]
        latency, between = self.start[tasks] - returned, np.maximum(0, self.start[tasks] - held)
        free = held <= returned
        # What the window's first had to follow was launched before it: its wait tells nothing of launches.
        quick = latency[free & (latency >= 0) & (held > 0)]
        usual, slow = np.percentile(quick, (10, 90)).astype(int).tolist() if len(quick) else (0, 0)
        queued = between[~free & (latency > slow)]
        turnaround = int(np.median(queued)) if len(queued) else 0
        for task, call, late, gap, was_free in zip(
            *(tasks.tolist(), calls.tolist(), latency.tolist(), between.tolist(), free.tolist()), strict=True
        ):
            source = self.piece.get(call, -1)
            if source >= 0 and late < 0:
                # It ran while the call went on: what came before the call let it go.
                source = int(self.before[source])
                late = int(self.start[task] - self.stop[source]) if source >= 0 else 0
                if source >= 0 and self.held_until[task] > self.stop[source]:
                    self._add_gap(task, gap)
                    late = min(late, usual)
            elif not was_free:
                # Launched just before its turn came: then it is still the launch that it waited for.
                behind_launch = gap > turnaround and late <= slow
                self._add_gap(task, turnaround if behind_launch else gap)
                late = late if behind_launch else min(late, usual)
            self._link_or_wait(source, task, late)

    def _add_gap(self, task: int, gap: int) -> None:
        """Before a task on the device, behind whatever it had to follow."""
        edge = self.held_by.get(task)
        if edge is None:
            self.gap[task] = gap
        else:
            self.edges.lag[edge] = gap

    def _link_or_wait(self, source: int, task: int, lag: int) -> None:
        """What nothing in the trace explains, or only something that ended later, begins when it began."""
        if source >= 0 and self.stop[source] <= self.start[task]:
            self.edges.add(source, task, lag)
        else:
            before = int(self.before[task])
            free = int(self.stop[before]) if before >= 0 else self.begin
            self.gap[task] = max(0, int(self.start[task]) - free)

    def link_streams(self, calls: Ints) -> None:
        """A stream that waits for an event of another goes on after what that event stood behind."""
        if len(self.row) == self.hosts:
            return
        queues = self._queues(calls)
        for recorded, asked, source_stream, target_lane in self._stream_waits():
            waiting = [q for q in queues if target_lane in (-1, q.lane) and q.launched[-1] > asked]
            if not waiting:
                continue
            target = min(q.after(asked) for q in waiting)[1]
            behind = [
                q
                for q in queues
                if source_stream in (-1, q.stream)
                and q.lane != self.lane[target]
                and q.launched[0] < recorded
            ]
            if not behind:
                continue
            source = max(q.before(recorded) for q in behind)[1]
            if self.stop[source] <= self.start[target]:
                self.edges.add(source, target, 0)
                if self.stop[source] >= self.held_until[target]:
                    self.held_until[target] = self.stop[source]
                    self.held_by[target] = len(self.edges.lag) - 1

    def _queues(self, calls: Ints) -> list[_Queue]:
        device = np.arange(self.hosts, len(self.row))
        launched = self.trace.start[calls]
        found = []
        for lane in np.unique(self.lane[device]).tolist():
            mine = np.flatnonzero(self.lane[device] == lane)
            mine = mine[np.argsort(launched[mine], kind="stable")]
            thread = self.trace.lanes[lane].thread
            stream = int(thread) if thread.isdigit() else -2
            found.append(_Queue(lane, stream, launched[mine], device[mine]))
        return found

    def _stream_waits(self) -> list[tuple[int, int, int, int]]:
        """When an event was recorded, when a stream was told to wait, the first's number, the other's lane.

        Without the profiler's rows of such waits (it writes them only when asked to) the calls are known, but
        no stream (-1): what is launched next is then taken for what waits.
        """
        trace = self.trace
        calls = trace.of(Kind.RUNTIME)
        waits = trace.of(Kind.SYNC)
        waits = waits[trace.external[waits] >= 0]
        if len(waits):
            began = dict(zip(trace.correlation[calls].tolist(), trace.start[calls].tolist(), strict=True))
            known = [
                (began.get(int(trace.external[wait])), began.get(int(trace.correlation[wait])), wait)
                for wait in waits.tolist()
            ]
            return [
                (recorded, asked, int(trace.size[wait]), int(trace.lane[wait]))
                for recorded, asked, wait in known
                if recorded is not None and asked is not None
            ]
        found = []
        records, asks = (self._calls_named(calls, names) for names in (_RECORDS, _STREAM_WAITS))
        for ask in asks.tolist():
            before = records[(records < ask) & (trace.lane[records] == trace.lane[ask])]
            if len(before):
                found.append((int(trace.start[before[-1]]), int(trace.start[ask]), -1, -1))
        return found

    def _calls_named(self, calls: Ints, parts: tuple[str, ...]) -> Ints:
        wanted = [i for i, name in enumerate(self.trace.names) if any(part in name for part in parts)]
        return calls[np.isin(self.trace.name[calls], wanted)]

    def link_waits(self, calls: Ints) -> None:
        """A call that returned right after a kernel ended, long after it began, has waited for it."""
        device = np.arange(self.hosts, len(self.row))
        if not len(device):
            return
        order = np.argsort(self.stop[device], kind="stable")
        ends, tasks = self.stop[device][order], device[order]
        launched = self.trace.start[calls][order]
        # A launch comes back at once, whatever ends meanwhile, but for one into a full queue, and for a copy
        # of memory that may be paged out.
        paged = [i for i, name in enumerate(self.trace.names) if "Pageable" in name]
        staged = np.isin(self.trace.name[self.row[device]], paged)
        for copy, call in zip(device[staged].tolist(), calls[staged].tolist(), strict=True):
            self._link_staged(copy, call)
        launches = np.isin(self.row[: self.hosts], calls)
        taken = self.duration[: self.hosts]
        full = launches & (self._queued(np.sort(launched), ends) >= _QUEUE)
        calling = self.trace.kind[self.row[: self.hosts]] == Kind.RUNTIME
        long = calling & (taken >= _WAITS_NS)
        quick = taken[launches & ~long]
        usual = int(np.median(quick)) if len(quick) else _WAITS_NS
        for task in np.flatnonzero(long & (~launches | full)).tolist():
            at = int(np.searchsorted(ends, self.stop[task], "right")) - 1
            if at < 0 or launched[at] >= self.stop[task] or ends[at] <= self.start[task]:
                if launches[task]:
                    # What made room was launched before the window: none of it is the host's own time.
                    self.duration[task] = usual
                continue
            late = int(self.stop[task] - ends[at])
            if late <= _RETURNS_NS:
                self.duration[task] = min(int(self.duration[task]), late)
                self.edges.add(int(tasks[at]), task, late, EdgeKind.END_AFTER)

    def _queued(self, launched: Ints, ends: Ints) -> Ints:
        """How many launches the device had ahead of it when each piece of a host began.

        What was launched before the window is not in it; the time until the window's first begins there tells
        how many those were, at the pace of the others.
        """
        times = self.start[: self.hosts]
        known = np.searchsorted(launched, times) - np.searchsorted(ends, times)
        starts = np.sort(self.start[self.hosts :])
        pace = (starts[-1] - starts[0]) / max(1, len(starts) - 1)
        unseen = np.maximum(0, starts[0] - times) / pace if pace else np.zeros(len(times))
        found: Ints = known + unseen.astype(np.int64)
        return found

    def _link_staged(self, copy: int, call: int) -> None:
        """The host takes part in a copy of memory that may be paged out, and waits for its turn on a stream.

        It returns a moment before the device has the last piece. Where that is long before, what the copy had
        to follow tells how long the host waited.
        """
        task, source = self.piece.get(call, -1), copy
        if task < 0 or self.start[copy] >= self.stop[task]:
            return
        if self.stop[copy] - self.stop[task] > _RETURNS_NS:
            source = int(self.before[copy])
            if source < 0 or self.stop[source] <= self.start[task]:
                return
        late = max(0, int(self.stop[task] - self.stop[source]))
        self.duration[task] = min(int(self.duration[task]), late)
        self.edges.add(source, task, late, EdgeKind.END_AFTER)

    def link_threads(self, main: int) -> None:
        """A thread that is long silent waits for one that is not: autograd's for the main one, and back."""
        hosts = np.arange(self.hosts)
        lanes = np.unique(self.lane[hosts])
        silent = hosts[self.gap[hosts] > _SILENCE_NS]
        for lane in lanes if len(lanes) > 1 else ():
            tasks, others = silent[self.lane[silent] == lane], hosts[self.lane[hosts] != lane]
            since = self.start[tasks] - self.gap[tasks]
            others = others[np.argsort(self.stop[others], kind="stable")]
            at = np.searchsorted(self.stop[others], self.start[tasks], "right") - 1
            last = others[np.maximum(at, 0)]
            waited = (at >= 0) & (self.stop[last] > since)
            if lane == main:
                busy = merged(self.start[others], self.stop[others])
                meanwhile = busy.length_before(self.start[tasks]) - busy.length_before(since)
                waited &= meanwhile > _BUSY_MEANWHILE * self.gap[tasks]
            for task, source in zip(tasks[waited].tolist(), last[waited].tolist(), strict=True):
                self.edges.add(source, task, int(self.start[task] - self.stop[source]))
                self.gap[task] = 0

    def step_ends(self, steps: Steps, calls: Ints) -> list[int]:
        """The task that ends each step: the device's last that it launched, without a device the host's."""
        if len(steps) < 2:
            return []
        device = np.arange(self.hosts, len(self.row))
        found = []
        launched = self.trace.start[calls]
        for begin, end in zip(steps.begin.tolist(), steps.end.tolist(), strict=True):
            mine = device[(launched >= begin) & (launched < end)]
            if not len(device):
                mine = np.flatnonzero((self.start >= begin) & (self.stop <= end))
            if not len(mine):
                return []
            found.append(int(mine[self.stop[mine].argmax()]))
        return found if len(set(found)) == len(found) else []
