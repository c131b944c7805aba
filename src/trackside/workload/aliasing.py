"""Which outputs share memory, with what: by elements, not by storage, since views of one buffer may be apart.

Runs in workers, on facts and addresses that were read through captured methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Place", "aliases", "overlap"]


@dataclass(frozen=True)
class Place:
    """Where an output lies."""

    path: str
    start: int
    end: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    element: int

    @staticmethod
    def of(fact: dict[str, Any], start: int) -> Place:
        count = 1
        for n, s in zip(fact["shape"], fact["stride"], strict=True):
            count += (n - 1) * s
        return Place(
            fact["path"],
            start,
            start + fact["span"],
            tuple(fact["shape"]),
            tuple(fact["stride"]),
            fact["span"] // count,
        )


def aliases(outputs: Sequence[Place], owners: Sequence[tuple[str, int, int]]) -> dict[str, str]:
    """For every output that shares memory, with whom: the first owner's name, else the first other output's.

    `owners` are named ranges: inputs, state, the exchange memory.
    """
    found: dict[str, str] = {}
    for place in outputs:
        for name, start, end in owners:
            if place.start < end and start < place.end:
                found[place.path] = name
                break
    by_start = sorted(outputs, key=lambda place: place.start)
    for i, one in enumerate(by_start):
        for other in by_start[i + 1 :]:
            if other.start >= one.end:
                break
            if overlap(one, other):
                for mine, theirs in ((one.path, other.path), (other.path, one.path)):
                    if mine not in found or (found[mine] > theirs and found[mine].startswith("out")):
                        found[mine] = theirs
    return found


def overlap(one: Place, other: Place) -> bool:
    """Whether two views have an element in common; true where that is not easily told."""
    if one.end <= other.start or other.end <= one.start:
        return False
    apart, rest = divmod(other.start - one.start, one.element)
    if one.element != other.element or one.stride != other.stride or rest:
        return True
    sizes = [max(m, n) for m, n in zip(one.shape, other.shape, strict=True)]
    dimensions = sorted(((s, n) for s, n in zip(one.stride, sizes, strict=True) if n > 1), reverse=True)
    return _reachable(apart, dimensions)


def _reachable(distance: int, dimensions: Sequence[tuple[int, int]]) -> bool:
    """Whether a difference of two index vectors gives that distance."""
    if not dimensions:
        return distance == 0
    (step, count), rest = dimensions[0], dimensions[1:]
    if step == 0:
        return _reachable(distance, rest)
    # With the remaining dimensions reaching less than a step, only the two nearest multiples can do.
    return any(
        abs(steps) < count and _reachable(distance - steps * step, rest)
        for steps in (distance // step, distance // step + 1)
    )
