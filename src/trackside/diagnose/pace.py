"""A traced graph at the program's usual pace: without single hiccups, and without what tracing took."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trackside.trace.dependencies import TracedGraph
from trackside.trace.graph import TaskGraph
from trackside.trace.model import Ints, Trace
from trackside.trace.schedule import schedule
from trackside.trace.steps import Steps

__all__ = ["at_pace", "typical"]

# What one border of an event costs a traced thread: 0.3 to 0.6 µs with shapes. More than this is no tracing,
# but a machine that changed its pace, and shares are kept.
_MOST_NS = 700
_ROUNDS = 12
_FEWEST_STEPS = 3


def typical(traced: TracedGraph, trace: Trace, steps: Steps) -> TracedGraph:
    """The graph with each task as long as its likes in the other steps are in the middle.

    A machine that others use too stops a thread for milliseconds now and then. Only threads and streams that
    do the same in every step can be put right.
    """
    if len(steps) < _FEWEST_STEPS:
        return traced
    duration, gap = traced.graph.duration_ns.copy(), traced.graph.gap_ns.copy()
    begin = steps.begin - steps.begin[0]
    step = np.searchsorted(begin, traced.start_ns, "right") - 1
    for lane in np.unique(traced.graph.resource):
        here = np.flatnonzero(traced.graph.resource == lane)
        here = here[np.argsort(traced.start_ns[here], kind="stable")]
        turns = [here[step[here] == one] for one in range(len(steps))]
        names = [trace.name[traced.row[turn]] for turn in turns]
        if not len(names[0]) or any(not np.array_equal(names[0], other) for other in names[1:]):
            continue
        same = np.stack(turns)
        for column in (duration, gap):
            column[same] = np.median(column[same], axis=0).astype(np.int64)
    return replace(traced, graph=traced.graph.with_times(duration, gap))


def at_pace(traced: TracedGraph, on_host: Ints, step_ns: float) -> TracedGraph:
    """The graph with every piece and gap of a host thread shorter by one and the same time.

    Args:
        on_host: numbers of tasks on host threads.
        step_ns: the untraced step that it should reproduce.
    """
    graph = traced.graph
    if not len(graph.step_ends) or schedule(graph).step_ns <= step_ns:
        return traced
    low, high = 0.0, float(_MOST_NS)
    if schedule(_shorter(graph, on_host, high)).step_ns >= step_ns:
        return replace(traced, graph=_shorter(graph, on_host, high))
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if schedule(_shorter(graph, on_host, middle)).step_ns > step_ns:
            low = middle
        else:
            high = middle
    return replace(traced, graph=_shorter(graph, on_host, high))


def _shorter(graph: TaskGraph, on_host: Ints, ns: float) -> TaskGraph:
    """No time falls below half: of what is shorter than its own tracing, only so much is the tracing's."""
    duration, gap = graph.duration_ns.copy(), graph.gap_ns.copy()
    for column in (duration, gap):
        column[on_host] = np.maximum(column[on_host] // 2, column[on_host] - round(ns))
    return graph.with_times(duration, gap)
