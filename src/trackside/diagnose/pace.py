"""A traced graph at the program's usual pace: without single hiccups, and without what tracing took."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trackside.trace.dependencies import TracedGraph
from trackside.trace.graph import TaskGraph
from trackside.trace.model import Ints, Trace
from trackside.trace.schedule import schedule
from trackside.trace.steps import Steps

__all__ = ["at_pace", "lightest", "typical"]

# What one border of an event costs a traced thread: 0.3 to 0.6 µs with shapes. More than this is no tracing,
# but a machine that changed its pace, and shares are kept.
_MOST_NS = 700
# A step that keeps so much of its time beside a host that takes none is the device's.
_DEVICE_BOUND = 0.95
_ABOUT = 1.01
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
    if not len(graph.step_ends):
        return traced
    low, high = 0.0, float(_MOST_NS)
    light = _shorter(graph, on_host, high)
    if _is_device_bound(light, on_host, step_ns):
        # The device's own times differ a little from run to run: they do not make the host any quicker.
        step_ns = max(step_ns, _ABOUT * schedule(light).step_ns)
    if schedule(graph).step_ns <= step_ns:
        return traced
    if schedule(light).step_ns >= step_ns:
        return replace(traced, graph=light)
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if schedule(_shorter(graph, on_host, middle)).step_ns > step_ns:
            low = middle
        else:
            high = middle
    return replace(traced, graph=_shorter(graph, on_host, high))


def lightest(traced: TracedGraph, on_host: Ints, step_ns: float) -> TaskGraph | None:
    """The graph with the quickest host that there may have been untraced; None where the host sets the pace.

    Beside a device that sets it a host takes no less of a step, however much of its own time tracing made:
    how soon it would hold up a quicker device is not known.
    """
    light = _shorter(traced.graph, on_host, _MOST_NS)
    return light if _is_device_bound(light, on_host, step_ns) else None


def _is_device_bound(light: TaskGraph, on_host: Ints, step_ns: float) -> bool:
    """Whether a step would take as long with a host that takes no time at all."""
    if not len(light.step_ends):
        return False
    duration, gap = light.duration_ns.copy(), light.gap_ns.copy()
    duration[on_host] = gap[on_host] = 0
    alone = schedule(light.with_times(duration, gap)).step_ns
    return bool(alone >= _DEVICE_BOUND * max(step_ns, schedule(light).step_ns))


def _shorter(graph: TaskGraph, on_host: Ints, ns: float) -> TaskGraph:
    """No time falls below half: of what is shorter than its own tracing, only so much is the tracing's."""
    duration, gap = graph.duration_ns.copy(), graph.gap_ns.copy()
    for column in (duration, gap):
        column[on_host] = np.maximum(column[on_host] // 2, column[on_host] - round(ns))
    return graph.with_times(duration, gap)
