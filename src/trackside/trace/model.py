"""A trace in columns: one row for each event, sorted by start; texts are kept once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["ON_DEVICE", "Cut", "Ints", "Kind", "Lane", "Launch", "Mask", "OpInputs", "Trace"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Kind(IntEnum):
    """What an event is."""

    OP = 0
    """An operator of torch on a host thread."""
    RUNTIME = 1
    """A call into the CUDA or HIP runtime or driver."""
    KERNEL = 2
    COPY = 3
    FILL = 4
    SYNC = 5
    """What the device waits for: another stream, an event."""
    ANNOTATION = 6
    """A range of `record_function`: the user's, the optimizer's, the loader's."""
    DEVICE_ANNOTATION = 7
    PYTHON = 8
    MEMORY = 9
    """An allocation or a release; no duration."""
    OVERHEAD = 10
    """The profiler's own."""
    OTHER = 11


ON_DEVICE = (Kind.KERNEL, Kind.COPY, Kind.FILL)


class Lane(NamedTuple):
    """A row of the timeline: a host thread, or a stream of a device."""

    process: str
    thread: str
    name: str
    device: int
    """-1 for a host thread."""


class Launch(NamedTuple):
    """How a kernel was launched."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    registers: int
    shared_bytes: int
    occupancy: float
    """As the profiler estimates it, 0 to 1; -1 where it does not."""

    @property
    def blocks(self) -> int:
        return int(np.prod(self.grid)) if self.grid else 0


class OpInputs(NamedTuple):
    """What an operator was called with, as far as the profiler wrote it down."""

    shapes: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    values: tuple[str, ...]
    """Numbers and flags as text; empty for tensors."""


class Cut(NamedTuple):
    """Something that a file did not give."""

    what: str
    why: str


@dataclass(frozen=True)
class Trace:
    """Events of one process, or of several ranks side by side.

    Columns that do not apply to a kind of event hold -1. `detail` is a number in `inputs` for an operator, in
    `launches` for a kernel. A `SYNC` has in `external` the call that recorded the event it waits for, in
    `size` that event's stream. A `MEMORY` has its address in `correlation`, what is then allocated in
    `external` and reserved in `sequence`, its device in `detail`.
    """

    kind: npt.NDArray[np.uint8]
    start: Ints
    """Nanoseconds since `base_ns`."""
    duration: Ints
    name: npt.NDArray[np.int32]
    lane: npt.NDArray[np.int32]
    correlation: Ints
    """The same for a launch and what it launched."""
    external: Ints
    """The operator that made a call, by its own number."""
    sequence: Ints
    """The same for an operator and its derivative."""
    forward_thread: npt.NDArray[np.int32]
    """Of a derivative: the profiler's number of the thread that ran the operator."""
    detail: npt.NDArray[np.int32]
    size: Ints
    """Bytes copied, filled, allocated (negative: released)."""
    names: Sequence[str]
    lanes: Sequence[Lane]
    inputs: Sequence[OpInputs] = ()
    launches: Sequence[Launch] = ()
    base_ns: int = 0
    """Where the times begin, since 1970."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the file says about its machine and job."""
    cuts: tuple[Cut, ...] = ()

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def end(self) -> Ints:
        ends: Ints = self.start + self.duration
        return ends

    def of(self, *kinds: Kind) -> Ints:
        """Rows of these kinds, in order of time."""
        found: Ints = np.flatnonzero(np.isin(self.kind, kinds))
        return found

    @cached_property
    def on_device(self) -> Ints:
        return self.of(*ON_DEVICE)

    def where(self, kept: Mask) -> Trace:
        """Some of the rows; texts, lanes and facts are the same objects."""
        return replace(self, **{name: getattr(self, name)[kept] for name in COLUMNS})

    def name_of(self, row: int) -> str:
        return self.names[int(self.name[row])]

    def named(self, *names: str) -> Mask:
        """Which rows have one of these names."""
        wanted = [i for i, name in enumerate(self.names) if name in names]
        found: Mask = np.isin(self.name, wanted)
        return found


COLUMNS = {
    "kind": np.uint8,
    "start": np.int64,
    "duration": np.int64,
    "name": np.int32,
    "lane": np.int32,
    "correlation": np.int64,
    "external": np.int64,
    "sequence": np.int64,
    "forward_thread": np.int32,
    "detail": np.int32,
    "size": np.int64,
}
"""Columns and how they are held."""
