"""Edits of a task graph: what a change to the program would do to its timeline.

The edits of a list apply at once, in whatever order they are named, and all mean the unedited graph:

- Several that resize one task count once: the deepest cut and the largest growth. Two findings about the same
  task are mostly two names for the same waste.
- A removed task takes no time but keeps its place. The gap before it stays (`ShrinkGaps` takes it), and what
  had to come before it still comes before what had to come after it, on its resource and through its edges.
  Only its waiting goes: what follows a removed sync on its thread no longer waits for the device. A removed
  task that nothing remaining comes after is gone altogether.
- A moved task leaves an empty place of that kind and takes its edges along. The order on its old resource is
  not kept for it: where that order stood for data that it needs or gives, a `Link` must say so.
- `Unlink` comes first, so that it also cuts what removing or moving would keep.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from trackside.trace.graph import EdgeKind, whole_numbers

__all__ = ["Edit", "Indices", "Link", "Move", "Remove", "Scale", "SetDuration", "ShrinkGaps", "Unlink"]

Indices: TypeAlias = Sequence[int] | npt.NDArray[np.int64]
"""Numbers of tasks or edges. An edit keeps them as a tuple."""


@dataclass(frozen=True)
class Remove:
    """The tasks take no time any more, and nothing waits where they waited."""

    tasks: Indices

    def __post_init__(self) -> None:
        _keep_numbers(self, "tasks")


@dataclass(frozen=True)
class Scale:
    """Durations times a factor; of a wait, its own cost."""

    tasks: Indices
    factor: float

    def __post_init__(self) -> None:
        _keep_numbers(self, "tasks")
        if not (math.isfinite(self.factor) and self.factor >= 0):
            raise ValueError(f"factor: needed a finite number, 0 or more, found {self.factor}")


@dataclass(frozen=True)
class SetDuration:
    """Durations as given, one for all tasks or one for each; of a wait, its own cost."""

    tasks: Indices
    ns: int | Indices

    def __post_init__(self) -> None:
        _keep_numbers(self, "tasks")
        if isinstance(self.ns, int | np.integer):
            if self.ns < 0:
                raise ValueError(f"ns: needed 0 or more, found {self.ns}")
            return
        _keep_numbers(self, "ns")
        if len(self.ns) != len(self.tasks):
            raise ValueError(f"ns: needed one value or {len(self.tasks)}, found {len(self.ns)}")


@dataclass(frozen=True)
class ShrinkGaps:
    """The gaps before the tasks times a factor, from 0 (none is left) to 1."""

    tasks: Indices
    factor: float

    def __post_init__(self) -> None:
        _keep_numbers(self, "tasks")
        if not 0 <= self.factor <= 1:
            raise ValueError(f"factor: needed 0 to 1, found {self.factor}")


@dataclass(frozen=True)
class Unlink:
    """The edges are gone, by their numbers in the graph."""

    edges: Indices

    def __post_init__(self) -> None:
        _keep_numbers(self, "edges")


@dataclass(frozen=True)
class Link:
    """New edges, from each source to the target beside it."""

    sources: Indices
    targets: Indices
    lag_ns: int = 0
    kind: EdgeKind = EdgeKind.START_AFTER

    def __post_init__(self) -> None:
        _keep_numbers(self, "sources")
        _keep_numbers(self, "targets")
        if len(self.sources) != len(self.targets):
            raise ValueError(
                f"needed as many targets as sources, found {len(self.targets)} and {len(self.sources)}"
            )
        if self.lag_ns < 0:
            raise ValueError(f"lag_ns: needed 0 or more, found {self.lag_ns}")
        EdgeKind(self.kind)  # refuses what is none


@dataclass(frozen=True)
class Move:
    """The tasks run on another resource, which may be a new one, without the gaps before them.

    They stand there by when their dependencies are over in the unedited graph, among the others by when those
    start. A task that several edits move goes to the lowest number.
    """

    tasks: Indices
    resource: int

    def __post_init__(self) -> None:
        _keep_numbers(self, "tasks")
        if self.resource < 0:
            raise ValueError(f"resource: needed 0 or more, found {self.resource}")


Edit: TypeAlias = Remove | Scale | SetDuration | ShrinkGaps | Unlink | Link | Move


def _keep_numbers(edit: object, name: str) -> None:
    given = getattr(edit, name)
    object.__setattr__(edit, name, tuple(whole_numbers(name, given, "position").tolist()))
