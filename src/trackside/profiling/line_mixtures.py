"""Host time by stack, with the time of muted lines split in the proportions seen before they were muted."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trackside.profiling.line_events import Mute
from trackside.profiling.line_stacks import NO_STACK, LineStacks

__all__ = ["Spans", "own_times"]

# What a muted line takes as a rule is what a quarter of its runs stay below: where events cost as much as the
# line, the longer runs tell of the machine and not of the line.
_USUAL_SHARE = 0.25
# Other lines are interrupted now and then, for milliseconds: spans longer than so many times the median count
# as that long.
_OUTLIER = 10.0
# So many frames of muted code are told apart; what recurs more deeply is put together by its innermost line.
_DEEPEST = 50

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_Suffix = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of time in which code of the user's ran, of all threads."""

    stacks: Ints
    anchors: Ints
    """The stack at the last event before the span that muting leaves in the log.

    Once muted lines run, their time follows such an event, so what followed such events before splits it.
    """
    starts: Ints
    ends: Ints
    charges: Floats
    """What logging cost; infinite where all of it was the log's own time."""
    skips: Floats
    """What the events cost that were skipped in it."""
    if_muted: Floats
    """What the event at its start costs once it is muted."""

    def where(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> "Spans":
        return Spans(
            self.stacks[chosen],
            self.anchors[chosen],
            self.starts[chosen],
            self.ends[chosen],
            self.charges[chosen],
            self.skips[chosen],
            self.if_muted[chosen],
        )

    def own(self) -> Floats:
        """Durations without what logging cost, but for what was skipped."""
        return np.where(np.isinf(self.charges), 0.0, self.ends - self.starts - self.charges)


@dataclass(frozen=True, slots=True)
class _Mixture:
    """What follows an anchor."""

    shares: dict[_Suffix, float]
    """Codes and lines above the callers of the anchor → their share of the program's own time."""
    own: float
    """What of the time is the program's own; the rest is the cost of skipped events."""


def own_times(stacks: LineStacks, mutes: Sequence[Mute], plain_line_ns: float, spans: Spans) -> Floats:
    """Nanoseconds in which each stack was the one that ran, never negative.

    Args:
        stacks: gains those on which a muted line must have run but was never seen.
        plain_line_ns: what a cheap line takes as a rule.
    """
    if not mutes:
        return _sums(spans, len(stacks))
    places, count = _places(stacks)
    of_anchor = places[spans.anchors]
    muted_at = _muted_at(stacks, mutes)
    # For each place of an anchor: when the first of what follows it was muted.
    first_mute = np.full(count, np.inf)
    np.minimum.at(first_mute, of_anchor, muted_at[spans.stacks])
    collapsed = spans.starts >= first_mute[of_anchor]
    seen = ~collapsed & (spans.ends <= first_mute[of_anchor]) & np.isfinite(first_mute[of_anchor])
    hot = seen & np.isfinite(muted_at[spans.stacks])

    times = dict(enumerate(_sums(spans.where(~collapsed & ~hot), len(stacks)).tolist()))
    followers = list(_followers(spans.where(seen), np.isfinite(muted_at), plain_line_ns))
    for one in followers:
        if one.muted:
            times[one.stack] += one.usual_ns
    mixtures = _mixtures(stacks, places, followers)
    muted = spans.where(collapsed)
    totals = np.bincount(muted.anchors, muted.own(), len(stacks)).tolist()
    skips = np.bincount(muted.anchors, muted.skips, len(stacks)).tolist()
    for anchor in np.unique(muted.anchors).tolist():
        mixture = mixtures.get(int(places[anchor]))
        if mixture is None:
            times[anchor] += max(0.0, totals[anchor] - skips[anchor])
            continue
        for suffix, share in mixture.shares.items():
            stack = stacks.parents[anchor]
            for code, line in suffix:
                stack = stacks.number(stack, code, line)
            times[stack] = times.get(stack, 0.0) + max(0.0, totals[anchor]) * mixture.own * share
    return np.array([times.get(stack, 0.0) for stack in range(len(stacks))])


def _sums(spans: Spans, count: int) -> Floats:
    return np.maximum(np.bincount(spans.stacks, spans.own() - spans.skips, count), 0.0)


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


@dataclass(frozen=True, slots=True)
class _Follower:
    """A stack that was seen after an anchor, before any of what follows it was muted."""

    anchor: int
    stack: int
    muted: bool
    """Later on."""
    usual_ns: float
    """How long it ran in all, by what it takes as a rule."""
    if_muted_ns: float
    """What its events would have cost if they had been muted."""


def _followers(spans: Spans, muted: npt.NDArray[np.bool_], plain_line_ns: float) -> Iterator[_Follower]:
    spans = spans.where(np.isfinite(spans.charges))
    pairs, inverse = np.unique(np.array([spans.anchors, spans.stacks]).T, axis=0, return_inverse=True)
    order = np.argsort(inverse.reshape(-1), kind="stable")
    bounds = np.searchsorted(inverse.reshape(-1)[order], np.arange(len(pairs) + 1))
    for (anchor, stack), first, last in zip(pairs.tolist(), bounds[:-1], bounds[1:], strict=True):
        alike = spans.where(order[first:last])
        own = alike.own()
        if muted[stack]:
            usual = float(np.quantile(own, _USUAL_SHARE))
        else:
            usual = float(np.minimum(own, _OUTLIER * max(float(np.median(own)), plain_line_ns)).mean())
        runs = len(own)
        yield _Follower(
            anchor,
            stack,
            bool(muted[stack]),
            # Nothing may be left of a cheap line when the cost of its event is taken off.
            runs * max(usual, plain_line_ns),
            float(alike.if_muted.sum()),
        )


def _mixtures(stacks: LineStacks, places: Ints, followers: Iterable[_Follower]) -> dict[int, _Mixture]:
    """Place of an anchor → what follows it."""
    found: dict[int, dict[_Suffix, float]] = {}
    muted: dict[int, float] = {}
    suffixes = _Suffixes(stacks)
    for one in followers:
        suffix = suffixes.of(one.anchor, one.stack)
        if suffix is not None:
            place = int(places[one.anchor])
            mixture = found.setdefault(place, {})
            mixture[suffix] = mixture.get(suffix, 0.0) + one.usual_ns
            muted[place] = muted.get(place, 0.0) + one.if_muted_ns
    mixtures = {}
    for place, mixture in found.items():
        whole = sum(mixture.values())
        if whole > 0:
            shares = {suffix: weight / whole for suffix, weight in mixture.items()}
            mixtures[place] = _Mixture(shares, whole / (whole + muted[place]))
    return mixtures


class _Suffixes:
    """The codes and lines that a stack has above the callers of an anchor, outermost first."""

    def __init__(self, stacks: LineStacks) -> None:
        self._stacks = stacks
        self._known: dict[tuple[int, int], tuple[_Suffix, int]] = {}
        """Callers and stack → the outermost steps, and how many there are in all."""

    def of(self, anchor: int, stack: int) -> _Suffix | None:
        """Of a deep recursion, the outermost steps and the innermost; nothing if it has other callers."""
        floor = self._stacks.parents[anchor]
        above, at = [], stack
        while at != floor and (floor, at) not in self._known:
            if at == NO_STACK:
                return None
            above.append(at)
            at = self._stacks.parents[at]
        head, depth = self._known.get((floor, at), ((), 0))
        for one in reversed(above):
            depth += 1
            if depth <= _DEEPEST:
                head = (*head, self._step(one))
            self._known[floor, one] = head, depth
        return head if depth <= _DEEPEST else (*head, self._step(stack))

    def _step(self, stack: int) -> tuple[int, int]:
        return self._stacks.codes[stack], self._stacks.line(stack).line
