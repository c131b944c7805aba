"""When every task of a graph runs, how long a step takes, and how well that reproduces the trace."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trackside.trace.graph import EdgeKind, TaskGraph, whole_numbers
from trackside.trace.model import Ints

__all__ = ["Fidelity", "Schedule", "fidelity", "schedule"]


@dataclass(frozen=True, eq=False)
class Schedule:
    """Start and end of every task, in nanoseconds from 0."""

    start_ns: Ints
    end_ns: Ints
    makespan_ns: int
    """The last end."""
    step_ns: float
    """Time of a step once steps follow each other; the makespan, where the graph does not tell its steps.

    From the first step's end to the last's, by the steps between.
    """


@dataclass(frozen=True)
class Fidelity:
    """How far a simulated timeline is from the trace that it was built from, both from their first start on.

    A prediction is worth as much as this: a graph that does not give the traced times lacks dependencies, or
    has some that are not there.
    """

    ratio: float
    """Simulated over traced makespan."""
    step_ratio: float
    """The same for the time of a step."""
    worst_drift_ns: int
    """Largest distance between a simulated start or end and the traced one."""
    worst_task: int | None
    """The task that it was found at; None where there is no task."""
    worst_share: float
    """That distance as a share of the traced makespan."""
    contradictions: int
    """Dependencies and neighbours on a resource whose order the trace contradicts: such an edge is wrong."""


def schedule(graph: TaskGraph) -> Schedule:
    """Every task as early as what holds it back allows."""
    incoming = graph.incoming
    source, lag = incoming.source, incoming.lag
    # The one behind the last is never written: index -1, "no task before", reads time 0 from it.
    ends = [0] * (graph.task_count + 1)
    starts = []
    edge = 0
    for place, (previous, gap, duration, start_stop, end_stop) in enumerate(
        zip(
            incoming.previous,
            graph.gap_ns[graph.order].tolist(),
            graph.duration_ns[graph.order].tolist(),
            incoming.start_stop,
            incoming.end_stop,
            strict=True,
        )
    ):
        start = ends[previous] + gap
        while edge < start_stop:
            free = ends[source[edge]] + lag[edge]
            if free > start:
                start = free
            edge += 1
        end = start + duration
        while edge < end_stop:
            free = ends[source[edge]] + lag[edge]
            if free > end:
                end = free
            edge += 1
        starts.append(start)
        ends[place] = end
    ends.pop()
    start_ns, end_ns = np.empty_like(graph.duration_ns), np.empty_like(graph.duration_ns)
    start_ns[graph.order] = starts
    end_ns[graph.order] = ends
    makespan = max(ends, default=0)
    return Schedule(start_ns, end_ns, makespan, _step_ns(graph, end_ns, makespan))


def fidelity(graph: TaskGraph, traced_start: npt.ArrayLike, traced_end: npt.ArrayLike) -> Fidelity:
    """Compares the schedule of a graph with the times of the trace that it was built from.

    Args:
        traced_start: start of each task, in whole nanoseconds on any clock.
        traced_end: end of each task; a wait's includes the waiting.
    """
    count = graph.task_count
    start = whole_numbers("traced_start", traced_start, count=count, least=None)
    end = whole_numbers("traced_end", traced_end, count=count, least=None)
    if (end < start).any():
        raise ValueError(f"needed ends after starts, found task {np.flatnonzero(end < start)[0]} otherwise")
    if not count:
        return Fidelity(1.0, 1.0, 0, None, 0.0, 0)
    found = schedule(graph)
    start, end = start - start.min(), end - start.min()
    first = found.start_ns.min()
    drift = np.maximum(abs(found.start_ns - first - start), abs(found.end_ns - first - end))
    worst = int(drift.argmax())
    traced, simulated = float(end.max()), float(found.makespan_ns - first)
    traced_step = _step_ns(graph, end, traced)
    simulated_step = _step_ns(graph, found.end_ns, simulated)
    begun = np.where(graph.kind == EdgeKind.START_AFTER, start[graph.target], end[graph.target])
    follower = np.flatnonzero(graph.previous >= 0)
    return Fidelity(
        ratio=_share(simulated, traced, otherwise=1.0),
        step_ratio=_share(simulated_step, traced_step, otherwise=1.0),
        worst_drift_ns=int(drift[worst]),
        worst_task=worst,
        worst_share=_share(float(drift[worst]), traced, otherwise=0.0),
        contradictions=int(np.count_nonzero(end[graph.source] > begun))
        + int(np.count_nonzero(end[graph.previous[follower]] > start[follower])),
    )


def _step_ns(graph: TaskGraph, ends: npt.NDArray[np.number], makespan: float) -> float:
    if not len(graph.step_ends):
        return float(makespan)
    return float(np.ptp(ends[graph.step_ends])) / (len(graph.step_ends) - 1)


def _share(part: float, whole: float, otherwise: float) -> float:
    """Part over whole; `otherwise`, if both are 0."""
    if not whole:
        return math.inf if part else otherwise
    return part / whole
