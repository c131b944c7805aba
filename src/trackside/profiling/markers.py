"""Ranges of the profiler's that our clock sees too. Runs in the program's process: standard library only."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

__all__ = ["MARKER_PREFIX", "ClockMarkers", "Marker"]

MARKER_PREFIX = "trackside.clock/"
"""Events of the trace that begin with it are ours and not the program's."""

_EVERY_NS = 100_000_000
# The first of a row runs cold and is a few microseconds wide; the others narrow the offset down to one.
_ROW = 8


@dataclass(frozen=True, slots=True)
class Marker:
    """A range of the profiler's, and our clock before it, inside it and after it."""

    name: str
    before_ns: int
    inside_ns: int
    after_ns: int


class ClockMarkers:
    """Emits markers from the thread that is profiled; call `begin`, `tick` now and then, and `end`.

    Args:
        clock: nanoseconds, that of the line log.
        make_range: what makes a range of the profiler's of a name; as a rule torch's cheapest.
    """

    def __init__(
        self,
        clock: Callable[[], int] = time.perf_counter_ns,
        make_range: Callable[[str], Any] | None = None,
    ) -> None:
        if make_range is None:
            from torch._C._profiler import _RecordFunctionFast

            make_range = _RecordFunctionFast
        self.markers: list[Marker] = []
        self._clock = clock
        self._make_range = make_range
        self._numbers = count()
        self._due = 0

    def begin(self) -> None:
        """Once the profiler runs."""
        self._row()

    def tick(self) -> None:
        """Emits a marker if the last is 100 ms ago; costs a tenth of a microsecond otherwise."""
        if self._clock() >= self._due:
            self._mark()

    def end(self) -> None:
        """While the profiler still runs."""
        self._row()

    def _row(self) -> None:
        for _ in range(_ROW):
            self._mark()

    def _mark(self) -> None:
        name = f"{MARKER_PREFIX}{os.getpid()}/{next(self._numbers)}"
        there, clock = self._make_range(name), self._clock
        before = clock()
        there.__enter__()
        inside = clock()
        there.__exit__(None, None, None)
        after = clock()
        self.markers.append(Marker(name, before, inside, after))
        self._due = after + _EVERY_NS
