"""How one leaf of an output differs from another: floats by bins of magnitude, the rest exactly, ties aside.

Runs in the reference process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from trackside.comparison import accuracy
from trackside.workload import tree

__all__ = [
    "Beside",
    "Tally",
    "acceptable",
    "compare",
    "first_of",
    "number_excused",
    "out_of_reach",
    "same_bits",
    "unexcused",
]

# An input whose values collide this often tells hardly any two indices apart: a mask, not what was ranked.
_MOST_COLLISIONS = 0.25
_SAMPLED_ROWS = 64

# Draws that show an exact tie but for one time in 256.
_TIE_DRAWS = 8
# Draws of one ulp each that suffice to excuse an index, even at an exact tie: any order of equals will do.
_INDEX_DRAWS = 2
# Draws of each scale that show which way a near tie may fall; if but some are left that did not, more.
_DRAWS, _MORE_DRAWS = 8, 32
# Draws in which an exact tie falls each way: one value in eight is moved to a given side.
_EXACT_DRAWS = 64
# How many elements may be excused: some, since what is rare may happen twice, and so many times as many as
# rounding turns in the baseline or in the oracle. bfloat16 turns thousands of times as many as float32.
_SOME, _TIMES = 8, 8
# Exact ties among random floats, where arithmetic need not be exact: rounding to one of 256 steps between a
# row's least and largest gave 10 in 100 million. A grid gives thousands of times as many.
_CHANCE_TIES = 2.0**-17
# What bfloat16 rounds is off by so many of float32's ulps.
_NARROWEST_ULPS = 2.0**16
# Draws at each distance, and at the furthest; what part of those that differ may be out of their reach, for
# an element may be turned by the one draw in hundreds; two counts this part apart are not the same count
# rounded otherwise.
_FURTHER_DRAWS, _FURTHEST_DRAWS, _FAR = 4, 64, 0.25
# A mask that rounding alone decides in more than this share of its elements shows nothing.
_MOST_TURNED = 0.25


def same_bits(found: Any, wanted: Any) -> bool:
    """Whether two leaves are of one type and equal in every element."""
    if isinstance(found, torch.Tensor) and isinstance(wanted, torch.Tensor):
        return found.dtype == wanted.dtype and torch.equal(found, wanted)
    return type(found) is type(wanted) and bool(found == wanted)


def compare(found: Any, wanted: Any, bulk: bool = False) -> dict[str, Any]:
    """Errors per bin for floats, `bulk` as `measure` has it; for all else how many differ, and the first."""
    if isinstance(found, float) and isinstance(wanted, torch.Tensor | float):
        one, other = (torch.tensor([float(value)], dtype=torch.float64) for value in (found, wanted))
        return {"dtype": "float32", "plain": True, **accuracy.measure(one, other, bulk=bulk)}
    if not isinstance(found, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return _plain_difference("value", int(found != wanted), wanted, found)
    if tuple(found.shape) != tuple(wanted.shape):
        return _plain_difference("shape", 1, list(wanted.shape), list(found.shape))
    dtype = tree.dtype_name(found.dtype)
    if found.is_floating_point() or found.is_complex():
        wide = wanted.to(torch.complex128 if found.is_complex() else torch.float64)
        return {"dtype": dtype, **accuracy.measure(found, wide, bulk=bulk)}
    return {"dtype": dtype, **first_of(found != wanted.to(found.dtype), found, wanted)}


def first_of(wrong: torch.Tensor, found: torch.Tensor, wanted: torch.Tensor) -> dict[str, Any]:
    """How many elements are wrong; where the first is, what was expected there and what found."""
    count = int(wrong.sum())
    row = {"mismatches": count, "elements": found.numel(), "at": [], "expected": "", "found": ""}
    if not count:
        return row
    at = int(torch.nonzero(wrong.reshape(-1)).reshape(-1)[0])
    return {
        **row,
        "at": accuracy.position(at, list(found.shape)),
        "expected": str(wanted.reshape(-1)[at].item()),
        "found": str(found.reshape(-1)[at].item()),
    }


def _plain_difference(kind: str, mismatches: int, wanted: Any, found: Any) -> dict[str, Any]:
    return {
        "dtype": kind,
        "mismatches": mismatches,
        "elements": 1,
        "at": [],
        "expected": str(wanted),
        "found": str(found),
    }


@dataclass(frozen=True)
class Beside:
    """A leaf of the oracle's on inputs beside the given ones; drawn anew each time, None if that fails."""

    hardly: Callable[[], Any] | None
    """Moved by far less than rounding does, so that what turns is an exact tie; None where that can't be."""
    moved: Callable[[float], Any]
    """Moved by up to so many ulps of the inputs' types."""
    ulps: tuple[float, ...]
    """What rounding is worth, rising."""
    at_extreme: Callable[[torch.Tensor, int, bool], Any]
    """With that element of that input made its one largest value, or its one smallest."""
    widest: float
    """The ulps that a baseline much narrower than its inputs is worth."""
    late: Callable[[], bool]
    """Whether drawing took so long that nothing more is drawn."""
    as_run: Callable[[], Any] | None = None
    """As the baseline computes it, rounded another way, be it exact; where no input could be moved."""


@dataclass
class Tally:
    """What the calls so far have shown of one leaf."""

    elements: int = 0
    """Those that were compared."""
    ties: int = 0
    """Exact ties that were put down to chance."""

    def by_chance(self, ties: int, at_least: int = 0) -> bool:
        """Whether so many more may be chance; they are counted then."""
        if self.ties + ties > max(at_least, self.elements * _CHANCE_TIES):
            return False
        self.ties += ties
        return True


def unexcused(
    found: torch.Tensor,
    wanted: torch.Tensor,
    base: torch.Tensor,
    inputs: Sequence[torch.Tensor],
    beside: Beside,
    tally: Tally,
) -> torch.Tensor:
    """Which integers or booleans are wrong: not the oracle's, nor the baseline's, nor turned by rounding.

    At a near tie what the oracle gives on inputs a few ulps away will do, if rounding turns about as many
    elements as the candidate has turned. At an exact tie legal arithmetic is exact too, as a rule: there the
    baseline has to be off itself (`>=` for `>` on a grid differs at exact ties only), unless ties are so
    rare that they are chance: then the baseline may have been lucky.
    """
    accepted = acceptable(found, wanted, base, inputs)
    if bool(accepted.all()):
        return ~accepted
    fixed = _repeats(found, base)
    if found.dtype == torch.int64 or beside.hardly is None:
        for other in _drawn(lambda: beside.moved(1.0), _INDEX_DRAWS):
            accepted |= (other == found) & ~fixed
    if beside.hardly is None or bool(accepted.all()):
        return ~accepted
    if not found.ndim:
        return torch.full_like(accepted, not number_excused(found, wanted, base, inputs, beside))
    tied, reached = torch.zeros_like(accepted), torch.zeros_like(accepted)
    for other in _drawn(beside.hardly, _TIE_DRAWS):
        tied |= other != wanted
        reached |= other == found
    doubtful, off = ~accepted & ~fixed, base != wanted
    near, ties = doubtful & ~tied, doubtful & tied
    excused = _excused_near(found, wanted, near, int((off & ~tied).sum()), tied, beside)
    grid = int(tied.sum()) > 1 + found.numel() * _CHANCE_TIES
    if int(ties.sum()) <= _TIMES * int((off & tied).sum()) or (not grid and tally.by_chance(int(ties.sum()))):
        excused |= reached & ties
    excused |= _excused_as_the_baseline(found, wanted, base, near & ~excused)
    excused |= _excused_by_chance(found, near & ~excused, beside, tally)
    return ~(accepted | excused)


def _excused_by_chance(
    found: torch.Tensor, doubtful: torch.Tensor, beside: Beside, tally: Tally
) -> torch.Tensor:
    """Which of the doubtful are exact ties of what is computed from integers, if they are chance.

    A mean of pixels may be half a number in doubles and in no other arithmetic. One in all calls, at least,
    since a task may be small; on a grid there are more.
    """
    reached = torch.zeros_like(doubtful)
    if beside.as_run is None or not 0 < int(doubtful.sum()) <= _SOME:
        return reached
    for other in _drawn(beside.as_run, _EXACT_DRAWS):
        reached |= (other == found) & doubtful
        if torch.equal(reached, doubtful) or beside.late():
            break
    return reached if tally.by_chance(int(reached.sum()), at_least=1) else torch.zeros_like(doubtful)


def _excused_as_the_baseline(
    found: torch.Tensor, wanted: torch.Tensor, base: torch.Tensor, doubtful: torch.Tensor
) -> torch.Tensor:
    """Which of the doubtful are off by one, as the baseline is elsewhere, if they are about as many.

    Noise on the inputs need not reach them: in (x - low) / (high - low), near one, it cancels; the rounding
    of the division does not. For quantities only: how far apart two indices or two truths are says nothing.
    """
    if found.dtype in (torch.bool, torch.int64) or int((base.long() - wanted.long()).abs().max()) > 1:
        return torch.zeros_like(doubtful)
    excused = doubtful & ((found.long() - wanted.long()).abs() == 1)
    few = int(excused.sum()) <= _TIMES * int((base != wanted).sum())
    return excused if few else torch.zeros_like(doubtful)


def _excused_near(
    found: torch.Tensor,
    wanted: torch.Tensor,
    near: torch.Tensor,
    off: int,
    tied: torch.Tensor,
    beside: Beside,
) -> torch.Tensor:
    """Which of the `near` elements rounding may have turned; none, if they are too many for that.

    Args:
        off: how many elements the baseline has turned.
    """
    excused = torch.zeros_like(near)
    turned: dict[float, list[int]] = {}

    def draw(ulps: float) -> None:
        for other in _drawn(lambda: beside.moved(ulps), 1):
            excused.logical_or_((other == found) & near)
            turned.setdefault(ulps, []).append(int(((other != wanted) & ~tied).sum()))

    def typical(ulps: float) -> float:
        counts = turned.get(ulps, [0])
        return sum(counts) / len(counts)

    def too_many() -> bool:
        few = _SOME + _TIMES * max(off, typical(middle))
        if found.dtype == torch.bool:
            few = min(few, max(_SOME, _MOST_TURNED * found.numel()))
        return int(near.sum()) > few

    middle, widest = beside.ulps[len(beside.ulps) // 2], beside.ulps[-1]
    for n in range(_MORE_DRAWS):
        for ulps in beside.ulps:
            draw(ulps)
        left = int((near & ~excused).sum())
        if not left or (n and too_many()) or (n + 1 >= _DRAWS and left > _SOME) or beside.late():
            break
    if too_many():
        return torch.zeros_like(near)
    if off > _SOME and not torch.equal(excused, near):
        # The baseline may be narrower than its inputs (TF32, a cast): as wide as it, no wider.
        while off > typical(widest) and 4 * widest <= beside.widest:
            widest *= 4
            draw(widest)
        # One element in some hundreds lies further off than the typical one.
        for _ in range(_DRAWS if widest > beside.ulps[-1] else 0):
            draw(widest)
            draw(2 * widest)
    return excused


def number_excused(
    found: Any, wanted: Any, base: Any, inputs: Sequence[torch.Tensor], beside: Beside
) -> bool:
    """Whether a plain int or bool lies among the oracle's, the baseline's and what rounding makes of them.

    One that points at an input's largest or smallest value, and follows when that is put elsewhere, is no
    count but a place: there only another place with that value will do, or one that rounding gives.
    """
    mine, *values = (_whole(value) for value in (found, wanted, base))
    known = [value for value in values if value is not None]
    if mine is None or len(known) < len(values):
        return False
    if (ranked := _ranked_by(known[0], inputs, beside)) is not None:
        if 0 <= mine < ranked.numel() and bool(ranked[mine] == ranked[known[0]]):
            return True
        near = _drawn(lambda: beside.moved(beside.ulps[0]), _DRAWS)
        return mine == known[1] or any(_whole(other) == mine for other in near)
    low, high = min(known), max(known)
    if low <= mine <= high:
        return True
    if beside.hardly is None:
        return False
    hardly = [_whole(value) for value in _drawn(beside.hardly, _TIE_DRAWS)]
    counts = getattr(wanted, "dtype", type(wanted)) not in (bool, torch.bool)
    chance = sum(x.numel() for x in inputs) * _CHANCE_TIES if counts else 0
    if any(value is None or abs(value - known[0]) > chance for value in hardly):
        return False
    for _ in range(_DRAWS):
        for ulps in beside.ulps:
            other = _whole(beside.moved(ulps))
            if other is not None:
                low, high = min(low, other), max(high, other)
        if low <= mine <= high:
            return True
    return False


def out_of_reach(base: Any, wanted: Any, beside: Beside) -> bool:
    """Whether integers of the baseline's come of a narrow type itself, and not of numbers that it rounds.

    `x.half().isinf()` is never true in the oracle, which computes in a wide type. Where rounding turns an
    integer, the oracle gives the same on inputs beside, as far off as the narrowest type is. Of indices
    nothing is said: which of many equals comes first is chance.
    """
    if not isinstance(base, torch.Tensor) or not isinstance(wanted, torch.Tensor) or not base.ndim:
        mine, its = _whole(base), _whole(wanted)
        if mine is None or its is None or abs(mine - its) <= _FAR * max(abs(mine), abs(its)):
            return False
        known = [its, *(value for other in _further(beside) if (value := _whole(other)) is not None)]
        return len(known) > 1 and not min(known) <= mine <= max(known)
    if base.dtype == torch.int64 or base.shape != wanted.shape:
        return False
    differs = base != wanted
    if int(differs.sum()) <= _SOME:
        return False
    left, beyond, drawn = differs, max(_SOME, _FAR * int(differs.sum())), 0
    for other in itertools.chain(_further(beside), _furthest(beside)):
        left = left & (other != base)
        drawn += 1
        if int(left.sum()) <= beyond:
            return False
    return drawn > 0


def _further(beside: Beside) -> Iterator[Any]:
    """The oracle's on inputs ever further off, up to what the narrowest type is off."""
    ulps, furthest = beside.ulps[0], beside.widest or _NARROWEST_ULPS
    while ulps <= furthest and not beside.late():
        yield from _drawn(partial(beside.moved, ulps), _FURTHER_DRAWS)
        ulps *= 4


def _furthest(beside: Beside) -> Iterator[Any]:
    """The oracle's on inputs as far off as the narrowest type is, which turns them in half of all draws."""
    for _ in range(_FURTHEST_DRAWS):
        if beside.late():
            return
        yield from _drawn(partial(beside.moved, beside.widest or _NARROWEST_ULPS), 1)


def _drawn(draw: Callable[[], Any], times: int) -> Iterator[Any]:
    for _ in range(times):
        if (value := draw()) is not None:
            yield value


def _ranked_by(place: int, inputs: Sequence[torch.Tensor], beside: Beside) -> torch.Tensor | None:
    """The input, flat, whose largest or smallest value the oracle points at, wherever that lies."""
    for x in inputs:
        if x.is_floating_point() and 0 <= place < x.numel() and x.numel() > 1:
            flat = _sortable(x).reshape(-1)
            for largest in (True, False):
                extreme = flat.max() if largest else flat.min()
                # Far from the place, so that no count comes to point there by chance.
                elsewhere = (place + x.numel() // 2) % x.numel()
                if bool(flat[place] == extreme) and (
                    _whole(beside.at_extreme(x, elsewhere, largest)) == elsewhere
                ):
                    return flat
    return None


def _sortable(x: torch.Tensor) -> torch.Tensor:
    """torch sorts and compares no floats of one byte."""
    return x.float() if x.element_size() == 1 else x


def _whole(value: Any) -> int | None:
    if isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_floating_point():
        value = value.item()
    return int(value) if isinstance(value, int) else None


def acceptable(
    found: torch.Tensor,
    wanted: torch.Tensor,
    base: torch.Tensor,
    inputs: Sequence[torch.Tensor],
) -> torch.Tensor:
    """Which integers will do: the oracle's, the baseline's, an equal key's index."""
    accepted = (found == wanted) | (found == base) | _picks_equal_key(found, wanted, inputs)
    return accepted & ~_repeats(found, base)


def _picks_equal_key(
    found: torch.Tensor, wanted: torch.Tensor, inputs: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Where `found`, read as an index into the input that `wanted` ranks, picks the same value."""
    equal = torch.zeros_like(found, dtype=torch.bool)
    if found.dtype != torch.int64 or not found.ndim:
        return equal
    for x in map(_sortable, inputs):
        for picks, wants in ((found, wanted), (found.unsqueeze(-1), wanted.unsqueeze(-1))):
            if (
                x.is_floating_point()
                and x.ndim == picks.ndim
                and x.shape[:-1] == picks.shape[:-1]
                and x.shape[-1]
                and _ranks(wants, x)
            ):
                last = x.shape[-1] - 1
                inside = (picks >= 0) & (picks <= last)
                same = torch.gather(x, -1, picks.clamp(0, last)) == torch.gather(x, -1, wants.clamp(0, last))
                equal |= (inside & same).reshape(found.shape)
    return equal


def _ranks(indices: torch.Tensor, x: torch.Tensor) -> bool:
    """Whether indices are the first of x's order along its last dimension, rising or falling, and x tells.

    Beside the scores a mask may be in order too: every index before the end picks its largest value. So x
    must have chosen most of the indices itself, or have values that seldom collide.
    """
    width = indices.shape[-1]
    picked = torch.gather(x, -1, indices.clamp(0, x.shape[-1] - 1))
    for falling in (False, True):
        order = torch.sort(x, dim=-1, descending=falling, stable=True)
        if torch.equal(picked, order.values[..., :width]):
            chosen = float((order.indices[..., :width] == indices).double().mean())
            return chosen > 0.5 or _collisions(order.values) < _MOST_COLLISIONS
    return False


def _collisions(ordered: torch.Tensor) -> float:
    """How likely two elements of a sorted row are equal, in the mean over some rows."""
    rows = ordered.reshape(-1, ordered.shape[-1])[:_SAMPLED_ROWS]
    shares = []
    for row in rows:
        counts = torch.unique_consecutive(row, return_counts=True)[1].double()
        shares.append(float((counts / row.numel()).square().sum()))
    return sum(shares) / len(shares)


def _repeats(found: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """Indices that occur more than once in a row where the baseline's row holds each of its own but once."""
    if found.dtype != torch.int64 or not found.ndim or found.shape[-1] < 2:
        return torch.zeros_like(found, dtype=torch.bool)
    ordered, places = torch.sort(found, dim=-1, stable=True)
    again = torch.zeros_like(found, dtype=torch.bool)
    again[..., 1:] = ordered[..., 1:] == ordered[..., :-1]
    distinct = torch.sort(base, dim=-1).values.diff(dim=-1).ne(0).all(dim=-1, keepdim=True)
    return torch.zeros_like(again).scatter(-1, places, again) & distinct
