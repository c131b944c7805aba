"""What belongs to what: a kernel to its launch, a launch to its operator, a derivative to its operator."""

from __future__ import annotations

import numpy as np

from trackside.trace.model import Ints, Kind, Mask, Trace
from trackside.trace.timeline import outermost

__all__ = ["Origins", "forward_of", "launch_of", "lost_launches", "parents"]

_NONE = -1
_LAUNCHES = (
    *("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch"),
    *("cudaMemcpyAsync", "cudaMemsetAsync", "hipLaunch", "hipModuleLaunch", "hipExtModuleLaunch"),
)
"""How calls begin that put work on a device."""
_CAPTURE = ("StreamBeginCapture", "StreamEndCapture")


def launch_of(trace: Trace, rows: Ints) -> Ints:
    """For each row on a device the call on the host that launched it; -1 where the trace has none."""
    calls = trace.of(Kind.RUNTIME)
    numbers = trace.correlation[calls]
    # Of calls with one number (a launch and what it calls inside) the first, which is the outer.
    order = np.argsort(numbers, kind="stable")
    calls, numbers = calls[order], numbers[order]
    wanted = trace.correlation[rows]
    at = np.minimum(np.searchsorted(numbers, wanted), max(0, len(numbers) - 1))
    if not len(calls):
        return np.full(len(rows), _NONE)
    return np.where((numbers[at] == wanted) & (wanted >= 0), calls[at], _NONE)


def lost_launches(trace: Trace) -> Ints:
    """Calls that launched what the trace does not hold: its buffers were full, or it was cut.

    A launch while a graph is captured launches nothing yet.
    """
    calls = trace.of(Kind.RUNTIME)
    wanted = [i for i, name in enumerate(trace.names) if name.startswith(_LAUNCHES)]
    launches = calls[np.isin(trace.name[calls], wanted)]
    held = np.isin(trace.correlation[launches], trace.correlation[trace.on_device])
    capturing = np.zeros(len(launches), np.bool_)
    marks = {name: trace.start[calls[_named(trace, calls, name)]] for name in _CAPTURE}
    begins, ends = marks.values()
    if len(begins):
        since = np.searchsorted(begins, trace.start[launches])
        capturing = since > np.searchsorted(ends, trace.start[launches])
    return launches[~held & ~capturing]


def _named(trace: Trace, rows: Ints, part: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    wanted = [i for i, name in enumerate(trace.names) if part in name]
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.isin(trace.name[rows], wanted)
    return found


def parents(trace: Trace, kinds: tuple[Kind, ...] = (Kind.OP,)) -> Ints:
    """For every row the innermost row of these kinds around it on its lane; -1 where there is none.

    A row of another kind that begins with an operator counts as inside it.
    """
    found = np.full(len(trace), _NONE)
    holders = np.isin(trace.kind, kinds)
    for lane in range(len(trace.lanes)):
        rows = np.flatnonzero(trace.lane == lane)
        if not holders[rows].any():
            continue
        found[rows] = _parents_of(rows, trace.start[rows], trace.end[rows], holders[rows])
    return found


def _parents_of(
    rows: Ints, starts: Ints, ends: Ints, holds: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Ints:
    """By one walk in order of time, with the rows that are open on a stack."""
    open_ends: list[int] = []
    open_rows: list[int] = []
    found = []
    for row, start, end, holder in zip(
        rows.tolist(), starts.tolist(), ends.tolist(), holds.tolist(), strict=True
    ):
        # What ends where this begins is over, but for a row without duration at its very end.
        while open_ends and (open_ends[-1] <= start if end > start else open_ends[-1] < start):
            open_ends.pop()
            open_rows.pop()
        found.append(open_rows[-1] if open_rows else _NONE)
        if holder:
            open_ends.append(end)
            open_rows.append(row)
    return np.array(found, np.int64)


def forward_of(trace: Trace, inside: Ints) -> Ints:
    """For every row in a derivative the operator that it is the derivative of; -1 for rows in none.

    Autograd numbers the nodes of its graph. An operator carries the number of the node that it is about to
    make, so several may carry one: those before it that made none, and those inside it. The last is it.

    Args:
        trace: with operators of both directions.
        inside: `parents(trace)`.
    """
    ops = trace.of(Kind.OP)
    numbered = ops[trace.sequence[ops] >= 0]
    backward = numbered[trace.forward_thread[numbered] > 0]
    forward = numbered[trace.forward_thread[numbered] <= 0]
    made_by = _last_with_number(trace, forward)
    own = np.full(len(trace), _NONE)
    if len(backward) and len(forward):
        at = np.minimum(np.searchsorted(made_by[0], trace.sequence[backward]), len(made_by[0]) - 1)
        known = made_by[0][at] == trace.sequence[backward]
        own[backward] = np.where(known, made_by[1][at], _NONE)
    return _inherited(own, inside)


class Origins:
    """Where in the forward pass things come from: of a derivative, the operator whose it is."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.inside = parents(trace)
        self.forward = forward_of(trace, self.inside)

    def of(self, rows: Ints) -> tuple[Ints, Mask]:
        """For rows on the host that row, or for a derivative's its operator; and which are a derivative's.

        Rows may be -1, and stay so.
        """
        there = rows >= 0
        forward = np.where(there, self.forward[np.where(there, rows, 0)], _NONE)
        return np.where(forward >= 0, forward, rows), forward >= 0

    def derivatives(self) -> tuple[Ints, Ints]:
        """The outermost rows that are a derivative, and their operators."""
        ops = self._trace.of(Kind.OP)
        rows = outermost(self._trace, ops[self.forward[ops] >= 0])
        return rows, self.forward[rows]


def _last_with_number(trace: Trace, rows: Ints) -> tuple[Ints, Ints]:
    """Numbers in order, and the outermost operator that holds the last one with each."""
    numbers = trace.sequence[rows]
    order = np.lexsort((rows, numbers))
    numbers, rows = numbers[order], rows[order]
    last = np.append(numbers[1:] != numbers[:-1], True) if len(numbers) else np.empty(0, np.bool_)
    return numbers[last], rows[last]


def _inherited(own: Ints, inside: Ints) -> Ints:
    """What a row has not, it takes from the row around it."""
    found = own.copy()
    # Rows come after those around them, so one pass in order is enough.
    for row in np.flatnonzero((own == _NONE) & (inside != _NONE)).tolist():
        found[row] = found[inside[row]]
    return found
