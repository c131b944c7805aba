"""Our clock and the profiler's: markers that both see, and the offset between the two with its error."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from trackside.profiling.markers import MARKER_PREFIX, Marker
from trackside.trace.model import Ints, Kind, Trace

__all__ = ["ClockFit", "NoMarkers", "fit", "marker_spans"]


class NoMarkers(ValueError):
    """The clocks cannot be compared; the message says why."""


@dataclass(frozen=True, slots=True)
class ClockFit:
    """The trace's time minus ours: one offset, or several that lie on a line from each to the next."""

    times_ns: Ints
    """On our clock, where each offset was found."""
    offsets_ns: Ints
    error_ns: int
    """No event between the first marker and the last is put farther than this from its true time."""

    @property
    def offset_ns(self) -> int:
        """The offset in the middle of the window."""
        return int(self.offsets_ns[len(self.offsets_ns) // 2])

    def to_log(self, trace_ns: npt.ArrayLike) -> Ints:
        """Times of the trace on our clock."""
        theirs = np.asarray(trace_ns, dtype=np.int64)
        return theirs - self._offsets(theirs, self.times_ns + self.offsets_ns)

    def to_trace(self, log_ns: npt.ArrayLike) -> Ints:
        """Times of our clock on the trace's."""
        ours = np.asarray(log_ns, dtype=np.int64)
        return ours + self._offsets(ours, self.times_ns)

    def _offsets(self, at: Ints, knots: Ints) -> Ints:
        # From the first offset on: a float holds differences to the nanosecond, but not the time since 1970.
        first_offset, first_knot = self.offsets_ns[0], knots[0]
        rise = np.interp(
            (at - first_knot).astype(np.float64),
            (knots - first_knot).astype(np.float64),
            (self.offsets_ns - first_offset).astype(np.float64),
        )
        offsets: Ints = first_offset + np.rint(rise).astype(np.int64)
        return offsets


def marker_spans(trace: Trace) -> list[tuple[str, int, int]]:
    """The markers in a trace: name, start and end in nanoseconds."""
    ours = [number for number, name in enumerate(trace.names) if name.startswith(MARKER_PREFIX)]
    # A device has its own picture of a range of the host's.
    rows = np.flatnonzero(np.isin(trace.name, ours) & (trace.kind != Kind.DEVICE_ANNOTATION))
    return [(trace.name_of(row), int(trace.start[row]), int(trace.end[row])) for row in rows.tolist()]


def fit(markers: Iterable[Marker], trace_events: Iterable[tuple[str, int, int]]) -> ClockFit:
    """The offset of the trace's clock: what all markers allow, or piece by piece where the clocks drift.

    Args:
        trace_events: name, start and end in nanoseconds; those that are no markers do not matter.

    Raises:
        NoMarkers: no marker is in the trace.
    """
    emitted = list(markers)
    spans = {name: (start, end) for name, start, end in trace_events if name.startswith(MARKER_PREFIX)}
    both = sorted((m for m in emitted if m.name in spans), key=lambda marker: marker.before_ns)
    if not both:
        raise NoMarkers(
            f"the clocks of trace and line log cannot be aligned: of {len(emitted)} markers emitted none is "
            f"among the {len(spans)} in the trace; emit them from the thread that the profiler records, "
            "while it records"
        )
    pieces: list[tuple[int, int, int, int]] = []  # first and last time, least and greatest offset
    slack = 0
    for marker in both:
        start, end = spans[marker.name]
        # It began between before and inside, and ended between inside and after.
        low = max(start - marker.inside_ns, end - marker.after_ns)
        high = min(start - marker.before_ns, end - marker.inside_ns)
        if low > high:  # the trace rounds its times
            slack = max(slack, low - high)
            low = high = (low + high) // 2
        if pieces and max(low, pieces[-1][2]) <= min(high, pieces[-1][3]):
            first, _, least, greatest = pieces[-1]
            pieces[-1] = first, marker.inside_ns, max(low, least), min(high, greatest)
        else:
            pieces.append((marker.inside_ns, marker.inside_ns, low, high))
    offsets = [(low + high) // 2 for _, _, low, high in pieces]
    # Between two pieces the offset is anywhere between theirs.
    jumps = [abs(one - other) for one, other in pairwise(offsets)]
    error = max((high - low + 1) // 2 for _, _, low, high in pieces) + max(jumps, default=0) + slack
    return ClockFit(
        np.array([(first + last) // 2 for first, last, _, _ in pieces], dtype=np.int64),
        np.array(offsets, dtype=np.int64),
        error,
    )
