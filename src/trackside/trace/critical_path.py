"""The chain of tasks, gaps and lags that makes a timeline as long as it is, and the slack of the others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from trackside.trace.graph import TaskGraph
from trackside.trace.model import Ints
from trackside.trace.schedule import Schedule

__all__ = ["CriticalPath", "StepKind", "critical_path", "slack"]


class StepKind(IntEnum):
    """What a step of the path spends its time on."""

    TASK = 0
    GAP = 1
    LAG = 2


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """Steps from time 0 to the last end, each beginning where the one before it ends.

    A wait that was held up by what it waited for is a step of no length: the time is in what it waited for.
    """

    kind: Ints
    """Each step's `StepKind`."""
    index: Ints
    """The task, the task that the gap lies before, or the edge whose lag it is."""
    start_ns: Ints
    length_ns: Ints
    task_share: npt.NDArray[np.float64]
    """For every task of the graph, its share of the makespan on the path, without the gap before it."""
    resource_share: dict[int, float]
    """Share that each resource has by its tasks and gaps; what is missing to 1 is `lag_share`."""
    gap_share: float
    """Share of all gaps, which is also part of their resources' shares."""
    lag_share: float

    @property
    def total_ns(self) -> int:
        return int(self.length_ns.sum())


def critical_path(graph: TaskGraph, schedule: Schedule) -> CriticalPath:
    """Goes back from the last end to what held it back. Of several equally long chains, one."""
    incoming = graph.incoming
    order = graph.order.tolist()
    gaps, durations = graph.gap_ns[graph.order].tolist(), graph.duration_ns[graph.order].tolist()
    starts, ends = schedule.start_ns[graph.order].tolist(), schedule.end_ns[graph.order].tolist()
    steps: list[tuple[StepKind, int, int, int]] = []

    def edge_from(first: int, stop: int, until: int) -> int:
        """Place of the source that is over just in time; adds the lag after it."""
        for edge in range(first, stop):
            place, lag = incoming.source[edge], incoming.lag[edge]
            if ends[place] + lag == until:
                if lag:
                    steps.append((StepKind.LAG, incoming.edge[edge], until - lag, lag))
                return place
        raise ValueError("the schedule is another graph's: nothing explains when a task runs")

    place = ends.index(schedule.makespan_ns) if ends else -1
    while place >= 0:
        start, end, task = starts[place], ends[place], order[place]
        if end != start + durations[place]:
            steps.append((StepKind.TASK, task, end, 0))
            place = edge_from(incoming.start_stop[place], incoming.end_stop[place], end)
            continue
        steps.append((StepKind.TASK, task, start, end - start))
        previous, gap = incoming.previous[place], gaps[place]
        if start == gap + (ends[previous] if previous >= 0 else 0):
            if gap:
                steps.append((StepKind.GAP, task, start - gap, gap))
            place = previous
        else:
            place = edge_from(incoming.end_stop[place - 1] if place else 0, incoming.start_stop[place], start)
    return _path(graph, schedule, np.array(steps[::-1], dtype=np.int64).reshape(-1, 4))


def slack(graph: TaskGraph, schedule: Schedule) -> Ints:
    """How much each task's duration may grow before the makespan does, in nanoseconds."""
    incoming = graph.incoming
    source, lag = incoming.source, incoming.lag
    gaps, durations = graph.gap_ns[graph.order].tolist(), graph.duration_ns[graph.order].tolist()
    # Latest end of each task that leaves the makespan as it is; index -1, "no task before", has its own.
    latest = [schedule.makespan_ns] * (graph.task_count + 1)
    edge = graph.edge_count - 1
    for place in range(graph.task_count - 1, -1, -1):
        end = latest[place]
        start_stop = incoming.start_stop[place]
        while edge >= start_stop:
            latest[source[edge]] = min(latest[source[edge]], end - lag[edge])
            edge -= 1
        start = end - durations[place]
        start_first = incoming.end_stop[place - 1] if place else 0
        while edge >= start_first:
            latest[source[edge]] = min(latest[source[edge]], start - lag[edge])
            edge -= 1
        previous = incoming.previous[place]
        latest[previous] = min(latest[previous], start - gaps[place])
    latest.pop()
    found = np.empty_like(graph.duration_ns)
    found[graph.order] = latest
    # Not from the end: a wait may grow by what it waits anyway.
    room: Ints = found - schedule.start_ns - graph.duration_ns
    return room


def _path(graph: TaskGraph, schedule: Schedule, steps: Ints) -> CriticalPath:
    kind, index, start, length = steps.T.copy()
    whole = schedule.makespan_ns or 1
    on_task, in_gap = kind == StepKind.TASK, kind == StepKind.GAP
    task_ns = np.bincount(index[on_task], length[on_task], minlength=graph.task_count)
    on_resource = on_task | in_gap
    numbers, member = np.unique(graph.resource[index[on_resource]], return_inverse=True)
    resource_ns = np.bincount(member, length[on_resource], minlength=len(numbers))
    return CriticalPath(
        kind=kind,
        index=index,
        start_ns=start,
        length_ns=length,
        task_share=task_ns / whole,
        resource_share=dict(zip(numbers.tolist(), (resource_ns / whole).tolist(), strict=True)),
        gap_share=float(length[in_gap].sum()) / whole,
        lag_share=float(length[kind == StepKind.LAG].sum()) / whole,
    )
