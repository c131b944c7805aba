"""A traced graph at the program's usual pace: without single hiccups, and without what tracing took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from trackside.profiling.fresh_memory import FRESH_BYTES, MOST_TOUCH_NS
from trackside.trace.dependencies import TracedGraph
from trackside.trace.graph import TaskGraph
from trackside.trace.model import Ints, Kind, Trace
from trackside.trace.schedule import schedule
from trackside.trace.steps import Steps
from trackside.trace.timeline import outermost

__all__ = ["at_pace", "first_touched", "lightest", "typical"]

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


def at_pace(
    traced: TracedGraph,
    on_host: Ints,
    step_ns: float,
    touched: Ints | None = None,
    touch_ns: float = MOST_TOUCH_NS,
) -> TracedGraph:
    """The graph with every piece and gap of a host thread shorter by one and the same time.

    Where that is not enough, what filled fresh memory is shorter too, by one and the same time a byte; and
    where nothing runs on a device, all is in the end.

    Args:
        on_host: numbers of tasks on host threads.
        step_ns: the untraced step that it should reproduce.
        touched: bytes of fresh memory that each task filled.
        touch_ns: what that costs a byte at most.
    """
    graph = traced.graph
    if not len(graph.step_ends):
        return traced
    light = _shorter(graph, on_host, _MOST_NS)
    if _is_device_bound(light, on_host, step_ns):
        # The device's own times differ a little from run to run: they do not make the host any quicker.
        step_ns = max(step_ns, _ABOUT * schedule(light).step_ns)
    if schedule(graph).step_ns <= step_ns:
        return traced
    if schedule(light).step_ns <= step_ns:
        return replace(traced, graph=_fitted(lambda ns: _shorter(graph, on_host, ns), _MOST_NS, step_ns))
    if touched is not None and touched.any() and touch_ns:
        light = _fitted(lambda ns: _untouched(light, touched, ns), touch_ns, step_ns)
    if len(on_host) == graph.task_count:
        # A machine that changed its pace changed it for all.
        pace = min(1.0, step_ns / schedule(light).step_ns)
        light = light.with_times(
            *(np.rint(pace * one).astype(np.int64) for one in (light.duration_ns, light.gap_ns))
        )
    return replace(traced, graph=light)


def _fitted(changed: Callable[[float], TaskGraph], most: float, step_ns: float) -> TaskGraph:
    """The graph that is changed as little as gives this step; by `most` where nothing does."""
    low, high = 0.0, most
    if schedule(changed(high)).step_ns > step_ns:
        return changed(high)
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if schedule(changed(middle)).step_ns > step_ns:
            low = middle
        else:
            high = middle
    return changed(high)


def first_touched(traced: TracedGraph, trace: Trace, allocated: Trace, begin_ns: int) -> Ints:
    """Bytes of newly taken memory that each task was the first to fill.

    What fills it is the longest of the pieces that follow inside the same outermost operator, before more is
    taken: some operators take memory themselves, others through one that does nothing else.

    Args:
        allocated: what tensors took and gave back, on the lanes of `trace`.
        begin_ns: of the graph, on the clock of the trace.
    """
    found = np.zeros(traced.graph.task_count, np.int64)
    rows = np.flatnonzero(allocated.size >= FRESH_BYTES)
    outer = outermost(trace, trace.of(Kind.OP))
    for lane in np.unique(allocated.lane[rows]).tolist():
        tasks = np.flatnonzero(traced.graph.resource == lane)
        tasks = tasks[np.argsort(traced.start_ns[tasks], kind="stable")]
        around = outer[trace.lane[outer] == lane]
        own = rows[allocated.lane[rows] == lane]
        own = own[np.argsort(allocated.start[own], kind="stable")]
        times = allocated.start[own]
        holder = np.searchsorted(trace.start[around], times, "right") - 1
        until = np.where(holder >= 0, trace.end[around[np.maximum(holder, 0)]], 0)
        first = np.searchsorted(traced.start_ns[tasks], times - begin_ns, "right") - 1
        last = np.searchsorted(traced.start_ns[tasks], until - begin_ns)
        more = np.append(first[1:], len(tasks))
        last = np.where(more > first, np.minimum(last, more), last)
        for at, behind, size in zip(first.tolist(), last.tolist(), allocated.size[own].tolist(), strict=True):
            near = tasks[max(0, at) : behind]
            if at >= 0 and len(near):
                found[near[traced.graph.duration_ns[near].argmax()]] += size
    return found


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


def _untouched(graph: TaskGraph, touched: Ints, ns_a_byte: float) -> TaskGraph:
    """Without what first touches took; a tenth of every task is its own at least."""
    without = graph.duration_ns - np.rint(ns_a_byte * touched).astype(np.int64)
    return graph.with_times(np.maximum(graph.duration_ns // 10, without), graph.gap_ns)


def _shorter(graph: TaskGraph, on_host: Ints, ns: float) -> TaskGraph:
    """No time falls below half: of what is shorter than its own tracing, only so much is the tracing's."""
    duration, gap = graph.duration_ns.copy(), graph.gap_ns.copy()
    for column in (duration, gap):
        column[on_host] = np.maximum(column[on_host] // 2, column[on_host] - round(ns))
    return graph.with_times(duration, gap)
