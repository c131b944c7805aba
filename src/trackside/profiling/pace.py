"""Traced steps at the program's usual pace: without single hiccups, and without what tracing took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from trackside.profiling.fresh_memory import FRESH_BYTES, MOST_TOUCH_NS
from trackside.trace.dependencies import TracedGraph, task_graph
from trackside.trace.graph import TaskGraph
from trackside.trace.model import Ints, Kind, Trace
from trackside.trace.schedule import schedule
from trackside.trace.steps import Steps, last_steps
from trackside.trace.timeline import communicates, outermost

__all__ = ["Fresh", "at_pace", "fresh_memory", "lightest", "typical", "untraced"]

# What one border of an event costs a traced thread: 0.1 to 0.2 µs on an EPYC, 0.3 to 0.6 beside an H200 with
# shapes. More than the most is no tracing, but a machine that changed its pace, and shares are kept. Beside
# first touches, which would do as well, it is taken to be the usual.
_MOST_NS, _USUAL_NS = 700, 200
# A step that keeps so much of its time beside a host that takes none is the device's.
_DEVICE_BOUND = 0.95
_ABOUT = 1.01
_ROUNDS = 12
# What fills memory takes so many nanoseconds a byte at least (50 GB/s), and this part of what it takes where
# the memory is new: a product of 50,000 numbers took 4 µs, and 62 with shapes traced.
_FILL_NS, _OWN = 0.02, 32
# What giving memory back to the kernel takes beside its first touch: 8 µs for 50 pages that took 58.
_GIVEN_BACK = 1 / 7
_FEWEST_STEPS = 3
# So many rows of a trace tell what tracing costs.
_TELLING_ROWS = 20_000


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
    # Before the first there is no step that could have left it a gap.
    gap = np.where(traced.graph.previous < 0, traced.graph.gap_ns, gap)
    return replace(traced, graph=traced.graph.with_times(duration, gap))


@dataclass(frozen=True)
class Fresh:
    """Bytes of memory that is new wherever a task fills it, by task: in its time, and in the gap before it.

    What is given back to the kernel counts as part of that.
    """

    duration: Ints
    gap: Ints


@dataclass(frozen=True)
class _Cost:
    """What tracing added to a step."""

    border_ns: float = 0.0
    """To every piece and gap of a host thread."""
    touch_ns: float = 0.0
    """To every byte of fresh memory that was filled."""
    pace: float = 1.0
    """How much of what is left a step has untraced."""


def at_pace(
    traced: TracedGraph,
    on_host: Ints,
    step_ns: float,
    fresh: Fresh | None = None,
    touch_ns: float = MOST_TOUCH_NS,
) -> TracedGraph:
    """The graph without what tracing added: one and the same time for each border of an event.

    Where that is not enough, what filled fresh memory or gave it back is shorter too, by one and the same
    time a byte; and where nothing runs on a device, all is in the end.

    Args:
        on_host: numbers of tasks on host threads.
        step_ns: the untraced step that it should reproduce.
        fresh: memory that was new, and given back.
        touch_ns: what its first touch costs a byte at most.
    """
    borders = _borders(traced, on_host)
    cost = _cost(traced.graph, on_host, borders, step_ns, fresh, touch_ns)
    return replace(traced, graph=_relieved(traced.graph, borders, fresh, cost))


def untraced(
    trace: Trace, steps: Steps, allocated: Trace | None, step_ns: float, touch_ns: float = MOST_TOUCH_NS
) -> tuple[Trace, Steps]:
    """A host's trace and steps on the clock of the untraced program: all in its order, at its own pace.

    Tracing takes a piece of a microsecond twice its time, and one that fills new memory many times that,
    and leaves a long product as it is: shares of a traced step are not those of the step. What a device
    computes is as long as it was, and what waits for others is not to be told: those stay.

    Args:
        allocated: what tensors took and gave back, on the lanes of `trace`.
        step_ns: the untraced step.
        touch_ns: what a first touch costs a byte at most.
    """
    if len(steps) < 2 or len(trace.on_device) or communicates(trace).any():
        return trace, steps
    few, fewer = last_steps(trace, steps, _TELLING_ROWS)
    whole, fresh = _host_graph(few, fewer, allocated)
    tasks = np.arange(whole.graph.task_count)
    borders = _borders(whole, tasks)
    cost = _cost(typical(whole, few, fewer).graph, tasks, borders, step_ns, fresh, touch_ns)
    if cost == _Cost():
        return trace, steps
    if few is not trace:
        whole, fresh = _host_graph(trace, steps, allocated)
        borders = _borders(whole, np.arange(whole.graph.task_count))
    if len(np.unique(whole.graph.resource)) != 1:
        # What one thread waits for in another is not to be told.
        return trace, steps
    usual = typical(whole, trace, steps)
    light = schedule(_relieved(usual.graph, borders, fresh, cost))
    begin = int(steps.begin[0])
    before = np.stack((whole.start_ns, whole.end_ns), 1)
    after = np.stack((light.start_ns, light.end_ns), 1)
    order = np.argsort(whole.start_ns, kind="stable")
    before, after = before[order].reshape(-1), after[order].reshape(-1)
    if before[0] > 0:
        before, after = np.append(0, before), np.append(0, after)
    # What follows the last is a gap too, with no task behind it.
    rest = int(steps.end[-1]) - begin - before[-1]
    if rest > 0:
        left = round(cost.pace * max(rest // 2, rest - round(2 * cost.border_ns)))
        before, after = np.append(before, before[-1] + rest), np.append(after, after[-1] + left)

    def on_that_clock(times: Ints) -> Ints:
        return begin + _moved(times - begin, before, after)

    start, end = on_that_clock(trace.start), on_that_clock(trace.end)
    moved = Steps(on_that_clock(steps.begin), on_that_clock(steps.end), steps.found_by)
    return replace(trace, start=start, duration=end - start), moved


def _host_graph(trace: Trace, steps: Steps, allocated: Trace | None) -> tuple[TracedGraph, Fresh | None]:
    graph = task_graph(trace, steps)
    if allocated is None:
        return graph, None
    return graph, fresh_memory(graph, trace, allocated, int(steps.begin[0]))


def _moved(times: Ints, before: Ints, after: Ints) -> Ints:
    """Times on another clock; what lies outside of what is known goes along with its nearest end."""
    inside = np.rint(np.interp(times, before, after)).astype(np.int64)
    found: Ints = inside + np.minimum(0, times - before[0]) + np.maximum(0, times - before[-1])
    return found


@dataclass(frozen=True)
class _Borders:
    """How many borders of events lie in each task's time, and in the gap before it."""

    duration: Ints
    gap: Ints


def _borders(traced: TracedGraph, on_host: Ints) -> _Borders:
    """Tracing takes its time before an event's beginning is noted, and after its end is.

    So an operator that calls none is as long as it was; one that does is longer by the borders of those, and
    so is the program between two. Beside a device, whose calls are events of another kind, every piece and
    every gap is taken to hold one.
    """
    count = traced.graph.task_count
    duration, gap = np.zeros(count, np.int64), np.zeros(count, np.int64)
    if len(on_host) < count:
        duration[on_host] = gap[on_host] = 1
        return _Borders(duration, gap)
    order = np.lexsort((traced.start_ns, traced.row))
    rows = traced.row[order]
    new = np.append(True, rows[1:] != rows[:-1]) if count else np.zeros(0, np.bool_)
    last = np.append(new[1:], True) if count else new
    duration[order] = 2 - new - last
    gap += 2
    return _Borders(duration, gap)


def _cost(
    graph: TaskGraph,
    on_host: Ints,
    borders: _Borders,
    step_ns: float,
    fresh: Fresh | None,
    touch_ns: float,
) -> _Cost:
    """What tracing added, so that a step without it takes what it should."""
    if not len(graph.step_ends):
        return _Cost()
    light = _shorter(graph, borders, _MOST_NS)
    if _is_device_bound(light, on_host, step_ns):
        # The device's own times differ a little from run to run: they do not make the host any quicker.
        step_ns = max(step_ns, _ABOUT * schedule(light).step_ns)
    if schedule(graph).step_ns <= step_ns:
        return _Cost()
    if fresh is not None and fresh.duration.any() and touch_ns:
        usual = _shorter(graph, borders, _USUAL_NS)
        if schedule(usual).step_ns > step_ns:
            fitted = _fitted(lambda ns: _untouched(usual, fresh, ns), touch_ns, step_ns)
            if fitted < touch_ns:
                return _Cost(_USUAL_NS, fitted)
            light = _untouched(light, fresh, touch_ns)
            if schedule(light).step_ns <= step_ns:
                bare = _untouched(graph, fresh, touch_ns)
                return _Cost(_fitted(lambda ns: _shorter(bare, borders, ns), _MOST_NS, step_ns), touch_ns)
            return _Cost(_MOST_NS, touch_ns, _pace(light, on_host, step_ns))
    if schedule(light).step_ns <= step_ns:
        return _Cost(_fitted(lambda ns: _shorter(graph, borders, ns), _MOST_NS, step_ns))
    return _Cost(_MOST_NS, 0.0, _pace(light, on_host, step_ns))


def _pace(light: TaskGraph, on_host: Ints, step_ns: float) -> float:
    """A machine that changed its pace changed it for all; a device's times are its own."""
    return 1.0 if len(on_host) < light.task_count else min(1.0, step_ns / schedule(light).step_ns)


def _relieved(graph: TaskGraph, borders: _Borders, fresh: Fresh | None, cost: _Cost) -> TaskGraph:
    """The graph without what tracing added."""
    if cost.border_ns:
        graph = _shorter(graph, borders, cost.border_ns)
    if cost.touch_ns and fresh is not None:
        graph = _untouched(graph, fresh, cost.touch_ns)
    if cost.pace < 1.0:
        paced = (np.rint(cost.pace * one).astype(np.int64) for one in (graph.duration_ns, graph.gap_ns))
        graph = graph.with_times(*paced)
    return graph


def _fitted(changed: Callable[[float], TaskGraph], most: float, step_ns: float) -> float:
    """The least that gives this step; `most` where nothing does."""
    low, high = 0.0, most
    if schedule(changed(high)).step_ns > step_ns:
        return high
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if schedule(changed(middle)).step_ns > step_ns:
            low = middle
        else:
            high = middle
    return high


def fresh_memory(traced: TracedGraph, trace: Trace, allocated: Trace, begin_ns: int) -> Fresh:
    """Newly taken memory that each task was the first to fill, and what was given back in it or before it.

    What fills it is the longest of the pieces that follow inside the same outermost operator, before more is
    taken: some operators take memory themselves, others through one that does nothing else.

    Args:
        allocated: what tensors took and gave back, on the lanes of `trace`.
        begin_ns: of the graph, on the clock of the trace.
    """
    filled = np.zeros(traced.graph.task_count, np.int64)
    gap = np.zeros_like(filled)
    outer = outermost(trace, trace.of(Kind.OP))
    large = np.flatnonzero(np.abs(allocated.size) >= FRESH_BYTES)
    for lane in np.unique(allocated.lane[large]).tolist():
        tasks = np.flatnonzero(traced.graph.resource == lane)
        tasks = tasks[np.argsort(traced.start_ns[tasks], kind="stable")]
        own = large[allocated.lane[large] == lane]
        own = own[np.argsort(allocated.start[own], kind="stable")]
        times, sizes = allocated.start[own], allocated.size[own]
        _add_returned(traced, tasks, times[sizes < 0] - begin_ns, sizes[sizes < 0], filled, gap)
        times, sizes = times[sizes > 0], sizes[sizes > 0]
        around = outer[trace.lane[outer] == lane]
        holder = np.searchsorted(trace.start[around], times, "right") - 1
        until = np.where(holder >= 0, trace.end[around[np.maximum(holder, 0)]], 0)
        first = np.searchsorted(traced.start_ns[tasks], times - begin_ns, "right") - 1
        last = np.searchsorted(traced.start_ns[tasks], until - begin_ns)
        more = np.append(first[1:], len(tasks))
        last = np.where(more > first, np.minimum(last, more), last)
        for at, behind, size in zip(first.tolist(), last.tolist(), sizes.tolist(), strict=True):
            near = tasks[max(0, at) : behind]
            if at >= 0 and len(near):
                filled[near[traced.graph.duration_ns[near].argmax()]] += size
    return Fresh(filled, gap)


def _add_returned(
    traced: TracedGraph, tasks: Ints, times: Ints, sizes: Ints, filled: Ints, gap: Ints
) -> None:
    """What was given back, to the task in which it was, else to the gap before the next."""
    weights = np.rint(-_GIVEN_BACK * sizes).astype(np.int64)
    place = np.searchsorted(traced.start_ns[tasks], times, "right") - 1
    inside = (place >= 0) & (times < traced.end_ns[tasks[np.maximum(place, 0)]])
    np.add.at(filled, tasks[place[inside]], weights[inside])
    following = ~inside & (place + 1 < len(tasks))
    np.add.at(gap, tasks[place[following] + 1], weights[following])


def lightest(traced: TracedGraph, on_host: Ints, step_ns: float) -> TaskGraph | None:
    """The graph with the quickest host that there may have been untraced; None where the host sets the pace.

    Beside a device that sets it a host takes no less of a step, however much of its own time tracing made:
    how soon it would hold up a quicker device is not known.
    """
    light = _shorter(traced.graph, _borders(traced, on_host), _MOST_NS)
    return light if _is_device_bound(light, on_host, step_ns) else None


def _is_device_bound(light: TaskGraph, on_host: Ints, step_ns: float) -> bool:
    """Whether a step would take as long with a host that takes no time at all."""
    if not len(light.step_ends):
        return False
    duration, gap = light.duration_ns.copy(), light.gap_ns.copy()
    duration[on_host] = gap[on_host] = 0
    alone = schedule(light.with_times(duration, gap)).step_ns
    return bool(alone >= _DEVICE_BOUND * max(step_ns, schedule(light).step_ns))


def _untouched(graph: TaskGraph, fresh: Fresh, ns_a_byte: float) -> TaskGraph:
    """Without what first touches took; to fill memory takes some time in any case."""
    duration, gap = graph.duration_ns, graph.gap_ns
    least = np.minimum(duration, np.maximum(duration // _OWN, (_FILL_NS * fresh.duration).astype(np.int64)))
    return graph.with_times(
        np.maximum(least, duration - np.rint(ns_a_byte * fresh.duration).astype(np.int64)),
        np.maximum(gap // _OWN, gap - np.rint(ns_a_byte * fresh.gap).astype(np.int64)),
    )


def _shorter(graph: TaskGraph, borders: _Borders, ns: float) -> TaskGraph:
    """No time falls below half: of what is shorter than its own tracing, only so much is the tracing's."""
    duration, gap = (
        np.where(count > 0, np.maximum(time // 2, time - np.rint(ns * count).astype(np.int64)), time)
        for time, count in ((graph.duration_ns, borders.duration), (graph.gap_ns, borders.gap))
    )
    return graph.with_times(duration, gap)
