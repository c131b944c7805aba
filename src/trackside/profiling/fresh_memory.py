"""Page faults that come with tracing, and what operators take without them.

The profiler's small records settle in the memory that a step's tensors have left, and the next tensors get
fresh memory. With shapes, which it is asked for where they could not be noted before (`inputs_log`), a step
of 4.7 ms took 10 ms, with 4,000 page faults where there had been none and 17 MB more each time, all in
operators that fill new tensors; without, a fifth of that is left.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trackside.trace.model import Ints, Kind, Trace

__all__ = ["FRESH_BYTES", "MOST_TOUCH_NS", "most_touch_ns", "untouched"]

FRESH_BYTES = 64 << 10
"""Smaller pieces an allocator keeps."""
MOST_TOUCH_NS = 0.6
"""What the first touch of a byte costs at most: 2.5 µs for a page of 4 kB."""
# What one border of an event costs a traced thread with shapes: 300 to 600 ns.
_BORDER_NS = 450.0


# The kernel gives memory by pages of this size, unless it is asked for larger ones.
_PAGE = 4096


def most_touch_ns(taken: Trace, faults: float) -> float:
    """What first touches cost a byte of new memory at most, by how many page faults tracing has brought.

    Args:
        taken: what tensors took and gave back meanwhile.
    """
    new = float(taken.size[taken.size >= FRESH_BYTES].sum())
    return MOST_TOUCH_NS * min(1.0, max(0.0, faults) * _PAGE / new) if new else 0.0


def untouched(
    trace: Trace, rows: Ints, longer_ns: float, most_ns: float = MOST_TOUCH_NS
) -> npt.NDArray[np.float64]:
    """How long each row took without its tracing, and without first touches of what was taken inside it.

    A tenth of it is its own at least.

    Args:
        rows: none of them inside another.
        longer_ns: by how much all of them together took longer than untraced.
        most_ns: what first touches cost a byte at most.
    """
    took = trace.duration[rows].astype(np.float64)
    memory, ops = trace.of(Kind.MEMORY), trace.of(Kind.OP)
    fresh = _inside(trace, rows, memory[trace.size[memory] >= FRESH_BYTES], trace.size)
    events = _inside(trace, rows, ops, np.ones(len(trace)))
    longer = max(0.0, longer_ns)
    border = min(_BORDER_NS, longer / (2 * float(events.sum()) or 1.0))
    longer -= 2 * border * float(events.sum())
    touch = min(most_ns, longer / (float(fresh.sum()) or 1.0))
    found: npt.NDArray[np.float64] = np.maximum(0.1 * took, took - 2 * border * events - touch * fresh)
    return found


def _inside(
    trace: Trace, rows: Ints, others: Ints, amounts: npt.NDArray[np.number]
) -> npt.NDArray[np.float64]:
    """The sum of the others' amounts that begin in each row, on its lane."""
    found = np.zeros(len(rows))
    for lane in np.unique(trace.lane[rows]).tolist():
        here = trace.lane[rows] == lane
        own = others[trace.lane[others] == lane]
        own = own[np.argsort(trace.start[own], kind="stable")]
        before = np.concatenate(([0.0], np.cumsum(amounts[own])))
        first, last = (np.searchsorted(trace.start[own], at[rows[here]]) for at in (trace.start, trace.end))
        found[here] = before[last] - before[first]
    return found
