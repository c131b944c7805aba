"""Which outputs share memory, with what: by elements, not by storage, since views of one buffer may be apart.

Runs in workers, on facts and addresses that were read through captured methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

__all__ = ["Place", "aliases", "overlap", "pieces", "stretches"]

# Strides that overlap so much that more would have to be tried are taken for an overlap.
_MOST_MULTIPLES = 16
# Of a view that is all gaps there would be as many as elements.
_MOST_PIECES = 1 << 14


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


def stretches(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """For each range of memory the whole stretch that it makes up with those which overlap it."""
    order = sorted(range(len(ranges)), key=lambda i: ranges[i])
    found: list[tuple[int, int]] = [(0, 0)] * len(ranges)
    group: list[int] = []
    begin = end = 0
    for i in order:
        start, stop = ranges[i]
        if group and start < end:
            end = max(end, stop)
        else:
            group, begin, end = [], start, stop
        group.append(i)
        for member in group:
            found[member] = (begin, end)
    return found


def pieces(place: Place) -> Iterator[tuple[int, int]]:
    """Address and size of the stretches without gaps that make up a view, the first _MOST_PIECES of them."""
    size = place.element
    outer: list[range] = []
    for step, n in sorted((s, n) for n, s in zip(place.shape, place.stride, strict=True) if n > 1 and s):
        if step * place.element == size and not outer:
            size *= n
        else:
            outer.append(range(0, n * step, step))
    for places in islice(product(*outer), _MOST_PIECES):
        yield place.start + sum(places) * place.element, size


def overlap(one: Place, other: Place) -> bool:
    """Whether two views have an element in common; true where that is not easily told."""
    if one.end <= other.start or other.end <= one.start:
        return False
    apart, rest = divmod(other.start - one.start, one.element)
    if one.element != other.element or rest:
        return True
    # An element in common: index times stride in the one, less that in the other, is how far they are apart.
    bounds: dict[int, tuple[int, int]] = {}
    for view, sign in ((one, 1), (other, -1)):
        for step, n in zip(view.stride, view.shape, strict=True):
            least, most = bounds.get(step, (0, 0))
            bounds[step] = (least, most + n - 1) if sign > 0 else (least - n + 1, most)
    return _reachable(apart, sorted(((step, *both) for step, both in bounds.items()), reverse=True))


def _reachable(distance: int, dimensions: Sequence[tuple[int, int, int]]) -> bool:
    """Whether steps within their bounds, in each dimension, add up to that distance."""
    if not dimensions:
        return distance == 0
    (step, least, most), rest = dimensions[0], dimensions[1:]
    if step == 0:
        return _reachable(distance, rest)
    # What the remaining dimensions can make up for, down and up; in nested strides that leaves two multiples.
    down, up = (sum(s * bounds[side] for s, *bounds in rest) for side in (0, 1))
    first, last = max(least, -((up - distance) // step)), min(most, (distance - down) // step)
    if last - first > _MOST_MULTIPLES:
        return True
    return any(_reachable(distance - steps * step, rest) for steps in range(first, last + 1))
