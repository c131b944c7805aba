"""How near a kernel comes to what this machine was measured to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trackside.trace.links import launch_of, parents
from trackside.trace.model import Ints, Kind, Trace
from trackside.trace.timeline import outermost
from trackside.trace.work import Work, work_of

__all__ = ["Placed", "Roofs", "kernel_works", "placed"]

# What so few bytes are comes from a cache: a GPU's has a speed of its own, a CPU's are not measured.
_IN_CACHE, _IN_CPU_CACHE = 16 << 20, 2 << 20
# Of a kernel's time so much must be of calls whose work is known.
_KNOWN = 0.8
# Nothing is faster than a roof: what seems to be did other work than its shapes say.
_TOO_FAST = 1.2
_FASTER_THAN_PLAIN = 1.05


@dataclass(frozen=True)
class Placed:
    """All calls of one kernel (without a device: of one operator)."""

    flops: float
    """0 for what only moves bytes."""
    bytes: float
    roof_share: float | None
    """None without measured ceilings."""
    bound: Literal["compute", "memory", "unknown"]


@dataclass(frozen=True)
class Roofs:
    """Measured speeds, by what they limit."""

    ceilings: Mapping[str, float]
    on_device: bool

    def least_ns(self, work: Work, ran_ns: float) -> tuple[float, float] | None:
        """The time that arithmetic and memory need at least; None where their speeds were not measured."""
        arithmetic = 0.0
        if work.flops:
            speed = self.arithmetic(work, ran_ns)
            if speed is None:
                return None
            arithmetic = 1e9 * work.flops / speed
        speed = self.memory(work)
        if speed is None:
            return None if not work.flops else (arithmetic, 0.0)
        return arithmetic, 1e9 * work.bytes / speed

    def arithmetic(self, work: Work, ran_ns: float) -> float | None:
        """float32 products may run as TF32: those that are faster than float32 can be do."""
        place = "gpu" if self.on_device else "cpu"
        speed = self.ceilings.get(f"{place}.gemm.{work.dtype}")
        if work.dtype == "fp32" and speed and work.flops > _FASTER_THAN_PLAIN * speed * ran_ns / 1e9:
            return self.ceilings.get(f"{place}.gemm.tf32", speed)
        return speed

    def memory(self, work: Work) -> float | None:
        if not self.on_device:
            return self.ceilings.get("cpu.memory.copy") if work.bytes > _IN_CPU_CACHE else None
        memory = self.ceilings.get("gpu.memory.copy")
        return self.ceilings.get("gpu.l2.copy", memory) if work.bytes <= _IN_CACHE else memory


def placed(trace: Trace, begin: int, end: int, ceilings: Mapping[str, float]) -> dict[str, Placed]:
    """By name what ran between two times, as far as its work is known."""
    on_device = len(trace.on_device) > 0
    rows = trace.on_device if on_device else outermost(trace, trace.of(Kind.OP))
    rows = rows[(trace.start[rows] >= begin) & (trace.end[rows] <= end)]
    runs = _by_kernel(trace, rows) if on_device else _by_operator(trace, rows)
    roofs = Roofs(ceilings, on_device)
    taken: dict[int, int] = defaultdict(int)
    for row in rows.tolist():
        taken[int(trace.name[row])] += int(trace.duration[row])
    found = {}
    for name, calls in runs.items():
        one = _placed(roofs, calls, taken[name])
        if one is not None:
            found[trace.names[name]] = one
    return found


_Call = tuple[float, list[Work]]
"""How long one ran, and what it had to do."""


def _works(trace: Trace) -> dict[int, Work]:
    """Operators whose work is known, without those inside them."""
    known: dict[int, Work] = {}
    for row in trace.of(Kind.OP).tolist():
        detail = int(trace.detail[row])
        if detail >= 0 and (work := work_of(trace.name_of(row), trace.inputs[detail])) is not None:
            known[row] = work
    around = parents(trace)
    return {row: work for row, work in known.items() if _first_in(around, int(around[row]), known) < 0}


def _first_in(around: Ints, row: int, wanted: Mapping[int, object]) -> int:
    """The first of these that a row is, or lies in; -1 if in none."""
    while row >= 0 and row not in wanted:
        row = int(around[row])
    return row


def kernel_works(trace: Trace, rows: Ints) -> dict[int, Work]:
    """What kernels had to do. An operator's work is that of its longest; others help it."""
    works, around, calls = _works(trace), parents(trace), launch_of(trace, rows)
    longest: dict[int, int] = {}
    for row, call in zip(rows.tolist(), calls.tolist(), strict=True):
        if call < 0 or trace.kind[row] != Kind.KERNEL:
            continue
        operator = _first_in(around, int(around[call]), works)
        if operator >= 0 and trace.duration[row] > trace.duration[longest.get(operator, row)] - 1:
            longest[operator] = row
    return {row: works[operator] for operator, row in longest.items()}


def _by_kernel(trace: Trace, rows: Ints) -> dict[int, list[_Call]]:
    found: dict[int, list[_Call]] = defaultdict(list)
    for row, work in kernel_works(trace, rows).items():
        found[int(trace.name[row])].append((float(trace.duration[row]), [work]))
    return found


def _by_operator(trace: Trace, rows: Ints) -> dict[int, list[_Call]]:
    works, around = _works(trace), parents(trace)
    inside: dict[int, list[Work]] = {row: [] for row in rows.tolist()}
    for row, work in works.items():
        outer = _first_in(around, row, inside)
        if outer >= 0:
            inside[outer].append(work)
    found: dict[int, list[_Call]] = defaultdict(list)
    for row, many in inside.items():
        if many:
            found[int(trace.name[row])].append((float(trace.duration[row]), many))
    return found


def _placed(roofs: Roofs, calls: list[_Call], taken_ns: int) -> Placed | None:
    known_ns = sum(ns for ns, _ in calls)
    if known_ns < _KNOWN * taken_ns:
        return None
    flops = sum(work.flops for _, many in calls for work in many)
    moved = sum(work.bytes for _, many in calls for work in many)
    arithmetic = memory = least = 0.0
    for ns, many in calls:
        for work in many:
            times = roofs.least_ns(work, ns)
            if times is None:
                return Placed(flops, moved, None, "unknown")
            arithmetic, memory = arithmetic + times[0], memory + times[1]
            least += max(times)
    if not least or least > _TOO_FAST * known_ns:
        return Placed(flops, moved, None, "unknown")
    bound: Literal["compute", "memory"] = "compute" if arithmetic >= memory else "memory"
    return Placed(flops, moved, min(1.0, least / known_ns), bound)
