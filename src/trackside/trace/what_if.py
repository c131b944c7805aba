"""What edits would gain: the changed graph is simulated again, and gains of several are never added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trackside.trace.edits import Edit, Indices, Link, Move, Remove, Scale, SetDuration, ShrinkGaps, Unlink
from trackside.trace.graph import (
    LONGEST_NS,
    EdgeKind,
    TaskGraph,
    previous_in_order,
    topological_order,
)
from trackside.trace.model import Ints
from trackside.trace.schedule import Schedule, schedule

__all__ = ["Combination", "Marginal", "Prediction", "apply", "combine", "predict"]

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Prediction:
    """Time of a step (`Schedule.step_ns`) before and after an edit."""

    before_ns: float
    after_ns: float

    @property
    def gain(self) -> float:
        """Share of the step that is saved; below 0 where the edit costs time."""
        return 1 - self.after_ns / self.before_ns if self.before_ns else 0.0


@dataclass(frozen=True)
class Marginal:
    """What one finding gains, as shares of the unedited step."""

    alone: float
    """With none of the others."""
    last_in: float
    """On top of all the others: near 0 where they gain the same time."""


@dataclass(frozen=True)
class Combination:
    """All findings together, and each one's part; the parts need not add up to the whole."""

    together: Prediction
    each: dict[str, Marginal]


def predict(graph: TaskGraph, edits: Iterable[Edit], before: Schedule | None = None) -> Prediction:
    """The time of a step before and after all these edits.

    Args:
        before: the graph's schedule, where it is known: it takes half of the time.

    Raises:
        ValueError: an edit names what is not there, or a `Link` closes a circle.
    """
    after = schedule(apply(graph, edits))
    return Prediction((before or schedule(graph)).step_ns, after.step_ns)


def combine(graph: TaskGraph, findings: Mapping[str, Sequence[Edit]]) -> Combination:
    """Applies all findings at once, each alone, and all but each: two simulations per finding."""
    before = schedule(graph)

    def of(names: Iterable[str]) -> Prediction:
        return predict(graph, [edit for name in names for edit in findings[name]], before)

    together = of(findings)
    each = {}
    for name in findings:
        others = of(other for other in findings if other != name)
        each[name] = Marginal(alone=of([name]).gain, last_in=together.gain - others.gain)
    return Combination(together, each)


def apply(graph: TaskGraph, edits: Iterable[Edit]) -> TaskGraph:
    """The graph after all edits.

    Tasks keep their numbers; stubs, which stand where tasks were moved away, come after them. Edges are
    numbered anew.

    Raises:
        ValueError: an edit names what is not there, or a `Link` closes a circle.
    """
    edits = tuple(edits)
    _check(graph, edits)
    count = graph.task_count
    duration, gap = _resized(graph, edits)
    removed = np.zeros(count, dtype=np.bool_)
    for edit in edits:
        if isinstance(edit, Remove):
            removed[_array(edit.tasks)] = True
    duration[removed] = 0
    if not any(isinstance(edit, Remove | Unlink | Link | Move) for edit in edits):
        return graph.with_times(duration, gap)
    edges = _relinked(graph, edits)
    waits = np.zeros(count, dtype=np.bool_)
    waits[edges.target[edges.kind == EdgeKind.END_AFTER]] = True
    resource = _destinations(graph, edits, removed)
    moves = resource != graph.resource
    # A removed wait is a stub on its thread and, on a resource of its own, what its edges still wait for. Any
    # other removed task is a stub itself: of no length, where it was, with its edges.
    released = np.flatnonzero(removed & waits)
    leaving = np.flatnonzero(moves | (removed & waits))
    turns = _turns(graph, edges, waits, moves) if moves.any() else None
    previous = _leave_stubs(graph, edges, leaving, released)
    resource[released] = resource.max(initial=0) + 1 + np.arange(len(released))
    resource = np.concatenate((resource, graph.resource[leaving]))
    duration = np.concatenate((duration, np.zeros_like(leaving)))
    gap = np.concatenate((gap, gap[leaving]))
    gap[leaving] = 0
    if turns is not None:
        _line_up(graph, previous, resource, turns, leaving, moves)
    order = _order(graph, resource, previous, edges, leaving, same_queues=turns is None)
    empty = np.concatenate((removed, np.ones(len(leaving), dtype=np.bool_)))
    gone = empty & ~_followed(previous, edges, order, empty, graph.step_ends)
    gap[gone] = 0
    edges.keep(~gone[edges.target])
    return TaskGraph(
        resource=resource,
        duration_ns=duration,
        gap_ns=gap,
        previous=previous,
        source=edges.source,
        target=edges.target,
        lag_ns=edges.lag,
        kind=edges.kind,
        step_ends=graph.step_ends,
        order=order,
    )


@dataclass
class _Edges:
    """Columns of edges while they change."""

    source: Ints
    target: Ints
    lag: Ints
    kind: Ints

    def add(
        self, source: Ints, target: Ints, lag: Ints | int = 0, kind: Ints | int = EdgeKind.START_AFTER
    ) -> None:
        self.source = np.concatenate((self.source, source))
        self.target = np.concatenate((self.target, target))
        self.lag = np.concatenate((self.lag, np.broadcast_to(lag, source.shape)))
        self.kind = np.concatenate((self.kind, np.broadcast_to(kind, source.shape)))

    def keep(self, kept: _Mask) -> None:
        self.source, self.target = self.source[kept], self.target[kept]
        self.lag, self.kind = self.lag[kept], self.kind[kept]


def _check(graph: TaskGraph, edits: Sequence[Edit]) -> None:
    for edit in edits:
        what, count = "task", graph.task_count
        match edit:
            case Unlink():
                what, count, named = "edge", graph.edge_count, edit.edges
            case Link():
                named = (*edit.sources, *edit.targets)
            case _:
                named = edit.tasks
        if max(named, default=-1) >= count:
            raise ValueError(
                f"{type(edit).__name__}: needed {what} numbers below {count}, found {what} {max(named)}"
            )


def _resized(graph: TaskGraph, edits: Sequence[Edit]) -> tuple[Ints, Ints]:
    """Durations and gaps, as new arrays."""
    traced = graph.duration_ns
    shortest, longest, gap = traced.copy(), traced.copy(), graph.gap_ns.copy()
    for edit in edits:
        match edit:
            case Scale():
                tasks = _array(edit.tasks)
                with np.errstate(over="ignore"):
                    scaled = np.rint(traced[tasks] * edit.factor)
                wanted = np.minimum(scaled, LONGEST_NS).astype(np.int64)
            case SetDuration():
                tasks = _array(edit.tasks)
                wanted = np.broadcast_to(np.asarray(edit.ns, dtype=np.int64), tasks.shape)
            case ShrinkGaps():
                before = _array(edit.tasks)
                left = np.rint(graph.gap_ns[before] * edit.factor).astype(np.int64)
                np.minimum.at(gap, before, left)
                continue
            case _:
                continue
        np.minimum.at(shortest, tasks, wanted)
        np.maximum.at(longest, tasks, wanted)
    return shortest + (longest - traced), gap


def _relinked(graph: TaskGraph, edits: Sequence[Edit]) -> _Edges:
    edges = _Edges(graph.source, graph.target, graph.lag_ns, graph.kind)
    kept = np.ones(graph.edge_count, dtype=np.bool_)
    for edit in edits:
        if isinstance(edit, Unlink):
            kept[_array(edit.edges)] = False
    edges.keep(kept)
    for edit in edits:
        if isinstance(edit, Link):
            edges.add(_array(edit.sources), _array(edit.targets), edit.lag_ns, edit.kind)
    return edges


def _destinations(graph: TaskGraph, edits: Sequence[Edit], removed: _Mask) -> Ints:
    """The resource of every task. A removed one stays where it is: there is nothing to move."""
    nowhere = np.iinfo(np.int64).max
    wanted = np.full(graph.task_count, nowhere)
    for edit in edits:
        if isinstance(edit, Move):
            tasks = _array(edit.tasks)
            wanted[tasks] = np.minimum(wanted[tasks], edit.resource)
    return np.where(removed | (wanted == nowhere), graph.resource, wanted)


def _turns(graph: TaskGraph, edges: _Edges, waits: _Mask, moves: _Mask) -> tuple[Ints, Ints]:
    """The times by which tasks have their turn on a resource: where they were, and with moved ones elsewhere.

    They never decrease along an order or an edge of the graph, so that queues by them close no circle. A task
    has its turn when it starts; a wait, which may start before what it waits for, when it ends.
    """
    found = schedule(graph)
    old = np.where(waits, found.end_ns, found.start_ns)
    new = np.where(moves, 0, old)
    held = moves[edges.target]
    np.maximum.at(new, edges.target[held], found.end_ns[edges.source[held]] + edges.lag[held])
    return old, new


def _leave_stubs(graph: TaskGraph, edges: _Edges, leaving: Ints, released: Ints) -> Ints:
    """Puts stubs in the place of tasks that leave; returns the task before each, stubs last.

    A stub starts after all that its task started after, and a removed wait after its own stub.
    """
    count = graph.task_count
    stand_in = np.append(np.arange(count), -1)  # -1, "no task before", stays as it is
    stand_in[leaving] = count + np.arange(len(leaving))
    leaves = np.zeros(count, dtype=np.bool_)
    leaves[leaving] = True
    started = leaves[edges.target] & (edges.kind == EdgeKind.START_AFTER)
    edges.add(edges.source[started], stand_in[edges.target[started]], edges.lag[started])
    edges.add(stand_in[released], released)
    previous = stand_in[graph.previous]
    previous = np.concatenate((previous, previous[leaving]))
    previous[leaving] = -1
    return previous


def _line_up(
    graph: TaskGraph,
    previous: Ints,
    resource: Ints,
    turns: tuple[Ints, Ints],
    leaving: Ints,
    moves: _Mask,
) -> None:
    """Gives moved tasks their turn on their new resources; changes `previous`."""
    old, new = turns
    turn = np.concatenate((new, old[leaving]))
    place = _places(graph.order)
    tie = np.concatenate((place, place[leaving]))
    line = np.flatnonzero(np.isin(resource, resource[: len(moves)][moves]))
    before = previous_in_order(resource[line], turn[line], tie[line])
    previous[line] = np.where(before >= 0, line[before], -1)


def _order(
    graph: TaskGraph, resource: Ints, previous: Ints, edges: _Edges, leaving: Ints, same_queues: bool
) -> Ints:
    if same_queues:
        # Where only new edges might disagree with the order that was, a look at them is quicker.
        stubs = graph.task_count + np.arange(len(leaving))
        order = np.insert(graph.order, _places(graph.order)[leaving], stubs)
        place = _places(order)
        if (place[edges.source] < place[edges.target]).all():
            return order
    return topological_order(resource, previous, edges.source, edges.target)


def _followed(previous: Ints, edges: _Edges, order: Ints, empty: _Mask, step_ends: Ints) -> _Mask:
    """Which tasks have something that remains after them, or remain themselves; step ends remain."""
    followed = ~empty
    followed[step_ends] = True
    place = _places(order)
    follower = np.flatnonzero((previous >= 0) & empty[previous])
    out = empty[edges.source]
    source = np.concatenate((previous[follower], edges.source[out]))
    target = np.concatenate((follower, edges.target[out]))
    last_first = np.argsort(-place[source], kind="stable")
    for before, after in zip(source[last_first].tolist(), target[last_first].tolist(), strict=True):
        if followed[after]:
            followed[before] = True
    return followed


def _places(order: Ints) -> Ints:
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


def _array(numbers: Indices) -> Ints:
    return np.array(numbers, dtype=np.int64)
