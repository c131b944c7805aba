"""The dependency graph of a timeline: tasks, their order on threads and streams, and what waits for what.

A resource runs its tasks one after the other in a fixed order; all times are whole nanoseconds from 0:

    start = latest of: end of the task before it on its resource + gap, end of each START_AFTER source + lag
    end   = latest of: start + duration, end of each END_AFTER source + lag

A gap is the resource's own work between two tasks, such as Python between two ops; it stays when the task
before it shrinks, and for a resource's first task it counts from 0. A lag is time in a dependency, such as
launch latency. A wait (a host sync) has its own cost as duration and END_AFTER edges from what it waits for,
so that shorter kernels shorten the waiting and never the cost.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trackside.trace.model import Ints

__all__ = ["EdgeKind", "TaskGraph"]

# A schedule's times are sums of durations, gaps and lags; below this no sum leaves 64 bits (146 years).
LONGEST_NS = 2.0**62
# A circle of more tasks than this is shown by its beginning.
_SHOWN = 8


class EdgeKind(IntEnum):
    """What an edge holds back."""

    START_AFTER = 0
    """The target starts after the source's end: launch → kernel, a stream that waits for an event."""
    END_AFTER = 1
    """The target starts when it may but does not end before the source: a host sync, waiting for a batch."""


class Incoming(NamedTuple):
    """What holds each task back, as lists for tight loops, by place in the graph's topological order.

    The START_AFTER edges of the task at place p are those from `end_stop[p - 1]` (0 for the first) to
    `start_stop[p]`, its END_AFTER edges those from there to `end_stop[p]`.
    """

    previous: list[int]
    """Place of the task before it on its resource, -1 for none."""
    start_stop: list[int]
    end_stop: list[int]
    source: list[int]
    """Place of each edge's source."""
    lag: list[int]
    edge: list[int]
    """Each edge's index in the graph."""


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """Tasks and edges as columns; made by `from_arrays`, which checks them."""

    resource: Ints
    duration_ns: Ints
    gap_ns: Ints
    previous: Ints
    """The task before it on its resource, -1 for none."""
    source: Ints
    target: Ints
    lag_ns: Ints
    kind: Ints
    """Each edge's `EdgeKind`."""
    step_ends: Ints
    """For each step the task that ends it; none where the graph is one step."""
    order: Ints
    """Every task, after all that hold it back."""

    def __post_init__(self) -> None:
        longest = sum(float(ns.sum(dtype=np.float64)) for ns in (self.duration_ns, self.gap_ns, self.lag_ns))
        if longest > LONGEST_NS:
            raise ValueError(f"needed times that add up to at most 2**62 ns, found {longest:.3g}")
        for column in fields(self):
            getattr(self, column.name).setflags(write=False)

    @classmethod
    def from_arrays(
        cls,
        resource: npt.ArrayLike,
        duration_ns: npt.ArrayLike,
        *,
        gap_ns: npt.ArrayLike | None = None,
        order_by: npt.ArrayLike | None = None,
        source: npt.ArrayLike = (),
        target: npt.ArrayLike = (),
        lag_ns: npt.ArrayLike | None = None,
        kind: npt.ArrayLike | None = None,
        step_ends: npt.ArrayLike = (),
    ) -> TaskGraph:
        """A graph of these tasks and edges.

        Args:
            resource: number of the thread or stream that each task runs on; any numbers from 0 on.
            duration_ns: time of each task; of a wait, only its own cost.
            gap_ns: time of the resource's own before each task; 0 if not given.
            order_by: a resource runs its tasks by this, such as their traced starts, and by index where it is
                equal; by index if not given.
            source: task that each edge leads from.
            target: task that each edge leads to.
            lag_ns: time between the source's end and what it holds back; 0 if not given.
            kind: an `EdgeKind` per edge; START_AFTER if not given.
            step_ends: for each step the task that ends it. Where the host runs ahead of a device, that is the
                device's last task of the step: the host's own marks would show the host's pace only.

        Raises:
            ValueError: columns of unequal length, values that cannot be, edges that run in a circle.
        """
        resources = whole_numbers("resource", resource)
        count = len(resources)
        sources = whole_numbers("source", source, "edge", most=count - 1)
        edges = len(sources)
        made = {
            "resource": resources,
            "duration_ns": whole_numbers("duration_ns", duration_ns, count=count),
            "gap_ns": whole_numbers("gap_ns", gap_ns, count=count),
            "source": sources,
            "target": whole_numbers("target", target, "edge", edges, most=count - 1),
            "lag_ns": whole_numbers("lag_ns", lag_ns, "edge", edges),
            "kind": whole_numbers("kind", kind, "edge", edges, most=max(EdgeKind)),
            "step_ends": whole_numbers("step_ends", step_ends, "step", most=count - 1),
        }
        ends = made["step_ends"]
        if len(ends) == 1 or len(np.unique(ends)) < len(ends):
            raise ValueError(
                f"step_ends: needed a task of its own for each of two or more steps, found {ends.tolist()}"
            )
        by = (
            np.arange(count)
            if order_by is None
            else whole_numbers("order_by", order_by, count=count, least=None)
        )
        previous = previous_in_order(resources, by)
        order = topological_order(resources, previous, sources, made["target"])
        return cls(previous=previous, order=order, **made)

    @property
    def task_count(self) -> int:
        return len(self.resource)

    @property
    def edge_count(self) -> int:
        return len(self.source)

    @cached_property
    def incoming(self) -> Incoming:
        count = self.task_count
        place = np.empty(count + 1, dtype=np.int64)
        place[self.order] = np.arange(count)
        place[-1] = -1  # what "no task before it" reads
        key = place[self.target] * len(EdgeKind) + self.kind
        by_target = np.argsort(key, kind="stable")
        stops = np.cumsum(np.bincount(key, minlength=count * len(EdgeKind)))
        return Incoming(
            previous=place[self.previous[self.order]].tolist(),
            start_stop=stops[EdgeKind.START_AFTER :: len(EdgeKind)].tolist(),
            end_stop=stops[EdgeKind.END_AFTER :: len(EdgeKind)].tolist(),
            source=place[self.source[by_target]].tolist(),
            lag=self.lag_ns[by_target].tolist(),
            edge=by_target.tolist(),
        )

    def with_times(self, duration_ns: Ints, gap_ns: Ints) -> TaskGraph:
        """The same tasks and edges with other durations and gaps; what is known about the edges is kept."""
        changed = replace(self, duration_ns=duration_ns, gap_ns=gap_ns)
        changed.__dict__["incoming"] = self.incoming
        return changed


def previous_in_order(resource: Ints, *by: npt.NDArray[np.generic]) -> Ints:
    """For each task the one before it on its resource, -1 for none: by the first key, ties by the next."""
    count = len(resource)
    sequence = np.lexsort((np.arange(count), *reversed(by), resource))
    follows = resource[sequence[1:]] == resource[sequence[:-1]]
    previous = np.full(count, -1, dtype=np.int64)
    previous[sequence[1:][follows]] = sequence[:-1][follows]
    return previous


def topological_order(resource: Ints, previous: Ints, source: Ints, target: Ints) -> Ints:
    """All tasks, each after those that hold it back.

    Raises:
        ValueError: there is no such order; the message shows a circle.
    """
    count = len(previous)
    followers = np.flatnonzero(previous >= 0)
    sources = np.concatenate((previous[followers], source))
    targets = np.concatenate((followers, target))
    successors = targets[np.argsort(sources, kind="stable")].tolist()
    stops = np.concatenate(([0], np.cumsum(np.bincount(sources, minlength=count)))).tolist()
    missing = np.bincount(targets, minlength=count).tolist()
    order = [task for task, holds in enumerate(missing) if not holds]
    for task in order:  # grows while it is read
        for follower in successors[stops[task] : stops[task + 1]]:
            missing[follower] -= 1
            if not missing[follower]:
                order.append(follower)
    if len(order) < count:
        circle = _circle(np.array(missing) > 0, sources, targets)
        raise ValueError(f"dependencies run in a circle: {_told(circle, resource, previous, source, target)}")
    return np.array(order, dtype=np.int64)


def _circle(blocked: npt.NDArray[np.bool_], sources: Ints, targets: Ints) -> list[int]:
    """Tasks of one circle in the order in which they hold each other back; the first comes again as last."""
    inside = blocked[sources] & blocked[targets]
    # Each blocked task has a blocked one before it, so that going back never ends but in a circle.
    cause = dict(zip(targets[inside].tolist(), sources[inside].tolist(), strict=True))
    task = int(np.flatnonzero(blocked)[0])
    walked: dict[int, int] = {}
    while task not in walked:
        walked[task] = len(walked)
        task = cause[task]
    back = list(walked)[walked[task] :]
    lowest = back.index(min(back))
    turned = back[lowest:] + back[:lowest]
    return [turned[0], *reversed(turned[1:]), turned[0]]


def _told(circle: list[int], resource: Ints, previous: Ints, source: Ints, target: Ints) -> str:
    words = [f"task {circle[0]}"]
    for before, after in list(pairwise(circle))[:_SHOWN]:
        if previous[after] == before:
            link = f"order on resource {resource[after]}"
        else:
            link = f"edge {np.flatnonzero((source == before) & (target == after))[0]}"
        words.append(f"task {after} ({link})")
    more = len(circle) - 1 - _SHOWN
    return " → ".join(words) + (f" → … {more} more" if more > 0 else "")


def whole_numbers(
    name: str,
    values: npt.ArrayLike | None,
    what: str = "task",
    count: int | None = None,
    least: int | None = 0,
    most: int | None = None,
) -> Ints:
    """A column as a copy in int64; zeros where none is given."""
    found = np.zeros(count or 0, dtype=np.int64) if values is None else np.asarray(values)
    if found.ndim != 1 or (count is not None and len(found) != count):
        wanted = "a value per" if count is None else f"{count} values, one per"
        raise ValueError(f"{name}: needed {wanted} {what}, found shape {found.shape}")
    if found.size and found.dtype.kind not in "iu":
        raise ValueError(f"{name}: needed whole numbers, found {found.dtype}")
    # Before the copy: an unsigned number may be too large for int64.
    too_low = found < least if least is not None else np.zeros(found.shape, dtype=np.bool_)
    wrong = too_low | (found > (np.iinfo(np.int64).max if most is None else most))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        limits = f"{least or 0} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{name}: needed {limits}, found {found[at]} at {what} {at}")
    return found.astype(np.int64)
