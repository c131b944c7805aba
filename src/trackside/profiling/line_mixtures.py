"""Host time by stack, with the time of muted lines split in the proportions seen before they were muted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trackside.profiling.line_events import Mute
from trackside.profiling.line_stacks import NO_STACK, LineStacks

__all__ = ["Spans", "own_times"]

# A cheap line is interrupted now and then, for milliseconds, which is not what it takes as a rule: spans
# longer than so many times the median count as that long.
_OUTLIER = 10.0

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_Suffix = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of time in which code of the user's ran, of all threads."""

    stacks: Ints
    anchors: Ints
    """The stack at the last event before the span that muting leaves in the log. Once muted lines run, their
    time follows such an event, so it is split by what followed such events before."""
    starts: Ints
    ends: Ints
    charges: Floats
    """What logging cost; infinite where all of it was the log's own time."""
    if_muted: Floats
    """What the event at its start costs once it is muted."""

    def where(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> "Spans":
        return Spans(
            self.stacks[chosen],
            self.anchors[chosen],
            self.starts[chosen],
            self.ends[chosen],
            self.charges[chosen],
            self.if_muted[chosen],
        )

    def own(self) -> Floats:
        """Durations without what logging cost."""
        return np.where(np.isinf(self.charges), 0.0, self.ends - self.starts - self.charges)


@dataclass(frozen=True, slots=True)
class _Mixture:
    """What follows an anchor."""

    shares: dict[_Suffix, float]
    """Codes and lines above the callers of the anchor → their share of the program's own time."""
    own: float
    """What of the time is the program's own; the rest is the cost of muted events."""


def own_times(stacks: LineStacks, mutes: Sequence[Mute], plain_line_ns: float, spans: Spans) -> Floats:
    """Nanoseconds in which each stack was the one that ran, never negative.

    Args:
        stacks: gains those on which a muted line must have run but was never seen.
        plain_line_ns: what a line takes at least.
    """
    if not mutes:
        return _sums(spans, len(stacks))
    places, count = _places(stacks)
    of_anchor = places[spans.anchors]
    # For each place of an anchor: when the first of what follows it was muted.
    first_mute = np.full(count, np.inf)
    np.minimum.at(first_mute, of_anchor, _muted_at(stacks, mutes)[spans.stacks])
    collapsed = spans.starts >= first_mute[of_anchor]
    seen = (spans.ends <= first_mute[of_anchor]) & np.isfinite(first_mute[of_anchor])
    mixtures = _mixtures(stacks, places, spans.where(seen), plain_line_ns)

    times = dict(enumerate(_sums(spans.where(~collapsed), len(stacks)).tolist()))
    muted = spans.where(collapsed)
    totals = np.maximum(np.bincount(muted.anchors, muted.own(), len(stacks)), 0.0)
    for anchor in np.unique(muted.anchors).tolist():
        itself = _Mixture({((stacks.codes[anchor], stacks.line(anchor).line),): 1.0}, 1.0)
        mixture = mixtures.get(int(places[anchor]), itself)
        for suffix, share in mixture.shares.items():
            stack = stacks.parents[anchor]
            for code, line in suffix:
                stack = stacks.number(stack, code, line)
            times[stack] = times.get(stack, 0.0) + totals[anchor] * mixture.own * share
    return np.array([times.get(stack, 0.0) for stack in range(len(stacks))])


def _sums(spans: Spans, count: int) -> Floats:
    return np.maximum(np.bincount(spans.stacks, spans.own(), count), 0.0)


def _places(stacks: LineStacks) -> tuple[Ints, int]:
    """A number for each stack's innermost code and line, and how many there are."""
    pairs = np.array([stacks.codes, stacks.line_ids], dtype=np.int64).T
    unique, numbers = np.unique(pairs, axis=0, return_inverse=True)
    return numbers.reshape(-1).astype(np.int64), len(unique)


def _muted_at(stacks: LineStacks, mutes: Sequence[Mute]) -> Floats:
    """When each stack's innermost line was muted, alone or with its code; infinity if never."""
    at = {(mute.code, mute.line): float(mute.time_ns) for mute in mutes}
    return np.array(
        [
            min(at.get((code, 0), np.inf), at.get((code, stacks.lines[line].line), np.inf))
            for code, line in zip(stacks.codes, stacks.line_ids, strict=True)
        ]
    )


def _mixtures(stacks: LineStacks, places: Ints, spans: Spans, plain_line_ns: float) -> dict[int, _Mixture]:
    """Place of an anchor → what follows it."""
    found: dict[int, dict[_Suffix, float]] = {}
    muted: dict[int, float] = {}
    for anchor, stack, alike in _alike(spans):
        suffix = _suffix(stacks, anchor, stack)
        if suffix is None:
            continue
        place = int(places[anchor])
        took = (alike.ends - alike.starts)[np.isfinite(alike.charges)].astype(np.float64)
        if not len(took):
            continue
        usual = (
            np.minimum(took, _OUTLIER * np.median(took)).sum()
            - alike.charges[np.isfinite(alike.charges)].sum()
        )
        mixture = found.setdefault(place, {})
        mixture[suffix] = mixture.get(suffix, 0.0) + max(float(usual), plain_line_ns * len(took))
        muted[place] = muted.get(place, 0.0) + float(alike.if_muted.sum())
    mixtures = {}
    for place, mixture in found.items():
        whole = sum(mixture.values())
        shares = {suffix: weight / whole for suffix, weight in mixture.items()}
        mixtures[place] = _Mixture(shares, whole / (whole + muted[place]))
    return mixtures


def _alike(spans: Spans) -> Iterator[tuple[int, int, Spans]]:
    """The spans of each anchor and stack."""
    pairs, inverse = np.unique(np.array([spans.anchors, spans.stacks]).T, axis=0, return_inverse=True)
    order = np.argsort(inverse.reshape(-1), kind="stable")
    bounds = np.searchsorted(inverse.reshape(-1)[order], np.arange(len(pairs) + 1))
    for (anchor, stack), first, last in zip(pairs.tolist(), bounds[:-1], bounds[1:], strict=True):
        yield anchor, stack, spans.where(order[first:last])


def _suffix(stacks: LineStacks, anchor: int, stack: int) -> _Suffix | None:
    """The codes and lines that a stack has above the callers of the anchor, outermost first."""
    floor, steps = stacks.parents[anchor], []
    for one in stacks.trail(stack):
        if one == floor:
            break
        steps.append((stacks.codes[one], stacks.line(one).line))
    else:
        if floor != NO_STACK:
            return None
    return tuple(reversed(steps))
