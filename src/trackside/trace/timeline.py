"""Where the time of a window went: every instant of it once, and what ran how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trackside.trace.intervals import EMPTY, Intervals, merged
from trackside.trace.model import Ints, Kind, Trace

__all__ = [
    "Breakdown",
    "Ran",
    "breakdown",
    "collective_ranges",
    "communicates",
    "main_thread",
    "ran_longest",
    "waits",
    "waits_for_input",
]

# Names that libraries give, not users: NCCL's and RCCL's kernels, and torch's own collectives on a CPU.
_COLLECTIVE_KERNELS = ("nccl", "rccl", "oneccl")
# Ranges that last as long as a collective does, on a thread of the library's own.
_COLLECTIVE_RANGES = ("gloo:", "ucc:", "mpi:")
_COLLECTIVE_OPS = ("c10d::", "_c10d_functional", "record_param_comms", "nccl:", *_COLLECTIVE_RANGES)
# torch's own ranges around fetching a batch.
_LOADER = "enumerate(DataLoader)#"
# And around each node of the graph that it goes back through.
_DERIVATIVE = "autograd::engine::evaluate_function"


@dataclass(frozen=True)
class Breakdown:
    """A window in nanoseconds; the five parts are its whole time.

    Of what runs at once the first counts: `copy` is copying beside which nothing is computed or communicated.
    """

    compute: int
    communication: int
    copy: int
    host: int
    """Nothing of that, and the host works: Python, launches, operators on tensors elsewhere."""
    idle: int
    """Nothing of that, and the program waits for its input."""

    @property
    def total(self) -> int:
        return self.compute + self.communication + self.copy + self.host + self.idle


class Ran(NamedTuple):
    """All runs of one kernel or operator in a window."""

    name: str
    calls: int
    total_ns: int
    median_ns: int
    first: int
    """The row of its first run."""


def breakdown(trace: Trace, begin: int, end: int) -> Breakdown:
    """Where the time between two times went: on the device if there is one, else on the host's threads."""
    layers = _device_layers(trace) if len(trace.on_device) else _host_layers(trace)
    taken, parts = EMPTY, []
    for layer in layers:
        inner = layer.within(begin, end)
        parts.append(inner.minus(taken).total)
        taken = _either(taken, inner)
    left = taken.outside(begin, end)
    idle = left.both(waits(trace)).total
    return Breakdown(parts[0], parts[1], parts[2], left.total - idle, idle)


def _either(one: Intervals, other: Intervals) -> Intervals:
    return merged(np.concatenate((one.start, other.start)), np.concatenate((one.end, other.end)))


def _device_layers(trace: Trace) -> list[Intervals]:
    """Kernels, collectives, copies on any device; collectives of the host's while no device computes."""
    kernels = trace.of(Kind.KERNEL)
    collective = communicates(trace)[kernels]
    talking = np.concatenate((kernels[collective], collective_ranges(trace)))
    copies = trace.of(Kind.COPY, Kind.FILL)
    return [_set(trace, kernels[~collective]), _set(trace, talking), _set(trace, copies)]


def _host_layers(trace: Trace) -> list[Intervals]:
    """Without a device operators compute, on whichever thread.

    An operator that starts a collective may also wait for it: what it does itself is no computing.
    """
    ops = trace.of(Kind.OP)
    collective, copying = communicates(trace)[ops], _is_copy(trace)[ops]
    calls = ops[collective]
    computing = ops[~collective & ~copying & ~_holds_any(trace, ops, calls)]
    talking = np.concatenate((calls, collective_ranges(trace)))
    return [
        _set(trace, computing).minus(_set(trace, calls)),
        _set(trace, talking),
        _set(trace, ops[copying]),
    ]


def _holds_any(trace: Trace, rows: Ints, inner: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows have one of the inner ones within them, on their lane."""
    found = np.zeros(len(rows), np.bool_)
    for lane in np.unique(trace.lane[inner]):
        starts = np.sort(trace.start[inner[trace.lane[inner] == lane]])
        here = trace.lane[rows] == lane
        found[here] = np.searchsorted(starts, trace.end[rows[here]]) > np.searchsorted(
            starts, trace.start[rows[here]]
        )
    return found


def collective_ranges(trace: Trace) -> Ints:
    """Ranges of collectives on the host, from their first byte to their last: what others wait for."""
    wanted = [i for i, name in enumerate(trace.names) if name.startswith(_COLLECTIVE_RANGES)]
    found: Ints = np.flatnonzero(np.isin(trace.name, wanted) & (trace.kind == Kind.ANNOTATION))
    return found


def _set(trace: Trace, rows: Ints) -> Intervals:
    return merged(trace.start[rows], trace.end[rows])


def communicates(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows are collectives, on a device or on the host."""
    wanted = [
        i
        for i, name in enumerate(trace.names)
        if name.lower().startswith(_COLLECTIVE_KERNELS) or name.startswith(_COLLECTIVE_OPS)
    ]
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.isin(trace.name, wanted)
    return found


def _is_copy(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return trace.named("aten::copy_", "aten::pin_memory", "aten::_pin_memory")


def waits(trace: Trace) -> Intervals:
    """When the program waited for its next batch, without what it computed meanwhile by itself."""
    loading = [i for i, name in enumerate(trace.names) if waits_for_input(name)]
    rows = np.flatnonzero(np.isin(trace.name, loading) & (trace.kind == Kind.ANNOTATION))
    ops = trace.of(Kind.OP)
    return _set(trace, rows).minus(_set(trace, ops))


def waits_for_input(name: str) -> bool:
    """Whether a range of this name is torch's own around fetching a batch."""
    return name.startswith(_LOADER)


def main_thread(trace: Trace) -> int:
    """The lane that drives the program: -1 where there is none.

    It is the one whose operators take the longest, without the derivatives that autograd runs: on a GPU they
    have a thread of their own, and it is often the busier one.
    """
    ops = outermost(trace, trace.of(Kind.OP, Kind.RUNTIME))
    if not len(ops):
        return -1
    derivatives = [i for i, name in enumerate(trace.names) if name.startswith(_DERIVATIVE)]
    own = ops[~np.isin(trace.name[ops], derivatives)]
    rows = own if len(own) else ops
    return int(np.bincount(trace.lane[rows], trace.duration[rows], len(trace.lanes)).argmax())


def ran_longest(trace: Trace, begin: int, end: int) -> list[Ran]:
    """What ran on devices between two times (without a device: operators, without those inside them)."""
    rows = trace.on_device if len(trace.on_device) else outermost(trace, trace.of(Kind.OP))
    rows = rows[(trace.start[rows] >= begin) & (trace.end[rows] <= end)]
    order = np.argsort(trace.name[rows], kind="stable")
    rows = rows[order]
    names, first, calls = np.unique(trace.name[rows], return_index=True, return_counts=True)
    found = []
    for name, at, count in zip(names, first, calls, strict=True):
        times = trace.duration[rows[at : at + count]]
        found.append(
            Ran(trace.names[name], int(count), int(times.sum()), int(np.median(times)), int(rows[at]))
        )
    return sorted(found, key=lambda ran: -ran.total_ns)


def outermost(trace: Trace, rows: Ints) -> Ints:
    """Those of these rows that lie in no other of them on their lane."""
    kept = []
    for lane in np.unique(trace.lane[rows]):
        here = rows[trace.lane[rows] == lane]
        # Sorted by start, the longer first: one is inside another if it ends before the latest end so far.
        latest = np.maximum.accumulate(trace.end[here])
        before = np.concatenate(([np.iinfo(np.int64).min], latest[:-1]))
        kept.append(here[trace.end[here] > before])
    found: Ints = np.sort(np.concatenate(kept)) if kept else rows
    return found
