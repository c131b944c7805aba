"""Sets of time: intervals that do not touch, sorted, as two arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trackside.trace.model import Ints

__all__ = ["EMPTY", "Intervals", "merged"]


class Intervals(NamedTuple):
    """Where something was the case; each from a start up to, but without, its end."""

    start: Ints
    end: Ints

    @property
    def total(self) -> int:
        return int((self.end - self.start).sum())

    def within(self, begin: int, end: int) -> Intervals:
        """The part between two times."""
        start, stop = np.clip(self.start, begin, end), np.clip(self.end, begin, end)
        kept = stop > start
        return Intervals(start[kept], stop[kept])

    def outside(self, begin: int, end: int) -> Intervals:
        """What is left of the time between two times."""
        inner = self.within(begin, end)
        start, stop = np.concatenate(([begin], inner.end)), np.concatenate((inner.start, [end]))
        kept = stop > start
        return Intervals(start[kept], stop[kept])

    def both(self, other: Intervals) -> Intervals:
        """Where this and the other are the case."""
        times = np.concatenate((self.start, other.start, self.end, other.end))
        counts = len(self.start) + len(other.start)
        change = np.concatenate((np.ones(counts, np.int64), np.full(counts, -1)))
        return _where(times, change, 2)

    def minus(self, other: Intervals) -> Intervals:
        """Where this is the case and the other is not."""
        if not len(self.start):
            return self
        return self.both(other.outside(int(self.start[0]), int(self.end[-1])))

    def length_before(self, times: Ints) -> Ints:
        """How much of it lies before each of these times."""
        if not len(self.start):
            return np.zeros(len(times), np.int64)
        done = np.concatenate(([0], np.cumsum(self.end - self.start)))
        at = np.searchsorted(self.start, times, "right") - 1
        inside = np.minimum(times, self.end[np.maximum(at, 0)]) - self.start[np.maximum(at, 0)]
        found: Ints = np.where(at >= 0, done[np.maximum(at, 0)] + inside, 0)
        return found

    def holds(self, times: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of these times lie in it."""
        at = np.searchsorted(self.start, times, "right") - 1
        if not len(self.start):
            return np.zeros(len(times), np.bool_)
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (at >= 0) & (times < self.end[np.maximum(at, 0)])
        return found


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def merged(start: Ints, end: Ints) -> Intervals:
    """Intervals in any order, overlapping or not, as such a set: each instant once."""
    kept = end > start
    start, end = start[kept], end[kept]
    change = np.concatenate((np.ones(len(start), np.int64), np.full(len(start), -1)))
    return _where(np.concatenate((start, end)), change, 1)


def _where(times: Ints, change: Ints, least: int) -> Intervals:
    """Where at least so many are open: the sum of all changes up to a time."""
    if not len(times):
        return EMPTY
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(change[order])
    # Of changes at one time only their sum counts.
    last = np.append(times[1:] != times[:-1], True)
    times, on = times[last], level[last] >= least
    flips = np.flatnonzero(np.diff(np.concatenate(([False], on, [False])).astype(np.int8)))
    return Intervals(times[flips[::2]], times[flips[1::2]])
