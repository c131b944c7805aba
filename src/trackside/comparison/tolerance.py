"""What error is allowed: a multiple of the baseline's own, per bin of magnitude, with a floor in ulps.

Measured reasons: one global factor of 16 accepts int8 for bf16 and half of exp zeroed, and refuses an
honest one-pass variance. Reordered fp32 sums make 0.4-8.7 times the baseline's error; TF32 830 times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = [
    "VISIBLY_NARROW",
    "Allowance",
    "Bins",
    "allow",
    "at_least",
    "elements_beyond",
    "error",
    "exceeds",
    "legal_factor",
    "may_be_anything_below",
    "merge",
    "normwise",
    "relative_error",
    "smallest_bin",
    "widened",
]

Bins = dict[str, list[float]]
"""Bin number -> count, rms error, largest error, rms of the oracle's values.

Roots and not sums of squares: those of doubles beyond 1e154 are infinite, those below 1e-162 zero.
"""

# Bins span a factor of 16, four binary exponents, one of them 1/2 to 8; subnormal doubles share the lowest.
FIRST_EXPONENT = 58
ZERO_BIN = 539
_ZERO = str(ZERO_BIN)
# Below this many elements a bin's own error is luck; its neighbours (a factor of 16 away) are asked too.
_FEW = 256
_FEW_SUBNORMALS = 0.05
# As many elements must show an error that has nothing to do with their magnitude before it counts for zeros.
_ENOUGH_FOR_ZEROS = 64
# An error that grows by less than this from bin to bin does not follow the values, which grow 16-fold.
_STAYS = 4.0
# Rounding to the output's type makes 0.29 epsilon rms of a value at most, 0.19 of values at random.
_ROUNDING = 0.3
# Rounding steps at the magnitude of most values by which any value may be off, in the mean and at most:
# exp(x) - 1 for expm1, a chunk's sum plus an offset, a log of a sum less a score. Where more than a few are
# so small that this would let them be anything, small values are what the task is about.
_STEPS, _MOST_STEPS, _ANYTHING, _FEW_SMALL = 1.0, 4.0, 1 / 16, 0.05
# A step of the inputs' magnitude is none of an output's beyond this part of it.
_COARSEST = 2.0**-14
# The share of largest values that do not count as most, and how far from the middle one most may lie.
_OUTLIERS, _SPREAD = 0.05, 16.0
# How far beyond the rms the largest of many normally distributed errors may lie, and that of some thousands.
_SIGMAS, _FEWER_SIGMAS = 8, 4


@dataclass(frozen=True)
class _Rule:
    """Factors on the baseline's error, and floors in units of the type's epsilon."""

    rms_factor: float
    max_factor: float
    rms_floor: float
    max_floor: float


_WIDE = _Rule(16, 16, 8, 128)
# Rounding to a 16-bit type alone gives 0.2 epsilon rms and 0.5 at most, so the floors are near that.
_NARROW = _Rule(4, 8, 0.5, 2)
# Beyond this rms error a wide output may be one of narrow arithmetic (TF32 makes about 3e-4).
VISIBLY_NARROW = 1e-5
# What one look at the baseline's error may lack of the next.
_LUCK = _Rule(2, 4, 0, 0)

_EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
    "complex64": 2.0**-23,
    "complex128": 2.0**-52,
}
_SMALLEST = {
    "float64": 2.0**-1022,
    "float32": 2.0**-126,
    "float16": 2.0**-14,
    "bfloat16": 2.0**-126,
    "float8_e4m3fn": 2.0**-6,
    "float8_e5m2": 2.0**-14,
    "complex64": 2.0**-126,
    "complex128": 2.0**-1022,
}


@dataclass(frozen=True)
class Allowance:
    """Largest rms and largest single error of one bin, in the output's own units."""

    rms: float
    largest: float


def merge(into: Bins, more: Bins) -> None:
    """Add the counts and errors of `more`."""
    for name, (n, rms, largest, magnitude) in more.items():
        old = into.setdefault(name, [0.0, 0.0, 0.0, 0.0])
        old[:] = [
            old[0] + n,
            _together([(old[0], old[1]), (n, rms)]),
            max(old[2], largest),
            _together([(old[0], old[3]), (n, magnitude)]),
        ]


def _together(parts: list[tuple[float, float]]) -> float:
    """The rms of parts, from their counts and their own; in no place squared as they are."""
    total = sum(n for n, _ in parts)
    return math.hypot(*(rms * math.sqrt(n / total) for n, rms in parts if n)) if total else 0.0


def smallest_bin(dtype: str) -> int:
    """The bin that begins with the type's smallest normal number; what lies below is subnormal there."""
    return (math.frexp(_smallest(dtype))[1] + 1022 + FIRST_EXPONENT) >> 2


def _smallest(dtype: str) -> float:
    return _SMALLEST.get(dtype, 2.0**-126)


def _is_subnormal(name: str, dtype: str) -> bool:
    return int(name) < smallest_bin(dtype)


def allow(
    baseline: Bins,
    dtype: str,
    declared: dict[str, float] | None = None,
    *,
    own: Bins | None = None,
    inputs: float = 0.0,
    flushed: bool = False,
    slack: float = 1.0,
    narrow: bool = False,
    small_parts: bool = False,
) -> dict[str, Allowance]:
    """The allowance of every bin that the baseline's calls have met.

    `declared` is the workload's own tolerance, relative to the bin's magnitude: `rms` and `max`. It is
    widened where the baseline itself would break it: a result of cancellation is small, its error is not.
    Where subnormals may be `flushed`, and what is small beside most values lost, they may be however many
    there are. Errors may be `slack` times as large as otherwise; what flushing costs stays what it is. `own`
    are the baseline's on the task's own inputs, where `baseline` are those on others: a step there is one
    here too, since 1 does not shrink with x in exp(x) - 1. So is one at the magnitude of its `inputs`, up to
    what is coarse: what is left of large scores may be small. `narrow` is a task that computes in a narrower
    type than an output's, which is then held to what such arithmetic is. Where small values make up whole
    `small_parts` of an output, a channel say, they are no rest of large ones, and a step is none for them.
    """
    rule, factors = _rule(dtype), _rule_for(dtype, narrow, baseline)
    epsilon, smallest = _EPSILON.get(dtype, 2.0**-23), _smallest(dtype)
    overall = _together([(n, magnitude) for n, _, _, magnitude in baseline.values()])
    # Flushing a few subnormals to zero is what fast exponentials do; a task made of them is about them.
    subnormal = sum(row[0] for name, row in baseline.items() if _is_subnormal(name, dtype))
    step = 0.0
    if not small_parts:
        step = max(_step(baseline, dtype, lost=flushed), _step(own or {}, dtype, lost=False))
    if rule is _WIDE:
        step = max(step, min(epsilon * inputs, _COARSEST * max(_most(baseline), _most(own or {}))))
    flushed = flushed or subnormal <= _FEW_SUBNORMALS * sum(row[0] for row in baseline.values())
    everywhere, below = _error_everywhere(baseline, dtype), _error_below(baseline, dtype)
    allowances = {}
    for name, (n, error, largest, magnitude) in baseline.items():
        # An exact zero has no magnitude of its own: at most one epsilon of the whole leaf's.
        scale = overall / rule.max_floor if name == _ZERO else magnitude
        if n < _FEW and name != _ZERO:
            beside = [baseline[o] for o in (str(int(name) - 1), str(int(name) + 1)) if o in baseline]
            error = _together([(n, error), *((row[0], row[1]) for row in beside)])
            largest = max(largest, *(row[2] for row in beside), 0.0)
        if int(name) < below.bin:
            error, largest = max(error, below.error), max(largest, _FEWER_SIGMAS * below.error)
        rms = max(factors.rms_factor * error, rule.rms_floor * epsilon * scale)
        most = max(factors.max_factor * largest, rule.max_floor * epsilon * scale)
        if factors is not rule:
            # No less than what is just too exact to be narrow arithmetic may be off by.
            rms = max(rms, rule.rms_factor * min(error, VISIBLY_NARROW * magnitude))
            most = max(most, rule.max_factor * min(largest, VISIBLY_NARROW * magnitude))
        if name != _ZERO:
            rms, most = max(rms, _STEPS * step), max(most, _MOST_STEPS * step)
        else:
            rms = max(rms, factors.rms_factor * everywhere)
            most = max(most, _SIGMAS * factors.rms_factor * everywhere)
        if declared is not None:
            magnitude = overall if name == _ZERO else scale
            rms = max(declared["rms"] * magnitude, _LUCK.rms_factor * error)
            most = max(declared["max"] * magnitude, _LUCK.max_factor * largest)
        # Only what is flushed may be off by that much: a float16 of 1e-3 by 6e-5 would be wrong by 6 %.
        absolute = smallest if flushed and _is_subnormal(name, dtype) else slack * 4 * smallest * epsilon
        allowances[name] = Allowance(slack * rms + absolute, slack * most + absolute)
    return allowances


def _error_everywhere(baseline: Bins, dtype: str) -> float:
    """The rms error that the baseline makes whatever a value's magnitude, beyond the rounding of the output.

    Sums make one: what is left where terms cancel is off by as much as what is large. There zeros may be
    too, exact as they are in the baseline's order. Where small values are more exact, so must zeros be.
    """
    return min(_unrounded(baseline, dtype, _ENOUGH_FOR_ZEROS).values(), default=0.0)


def _step(baseline: Bins, dtype: str, lost: bool) -> float:
    """One rounding step at the magnitude of most values; 0 where small ones are what the task is about.

    Only for types so wide that other code computes in them too; and zeros have rules of their own. If small
    values may be `lost` they may be however many there are.
    """
    if _rule(dtype) is not _WIDE:
        return 0.0
    step = _EPSILON.get(dtype, 2.0**-23) * _most(baseline)
    return step if lost or _small(baseline, step) <= _FEW_SMALL * _nonzero(baseline) else 0.0


def _small(baseline: Bins, step: float) -> float:
    """How many values are so small that a step would let them be anything."""
    return sum(
        n
        for name, (n, _, _, magnitude) in baseline.items()
        if name != _ZERO and _ANYTHING * magnitude < _MOST_STEPS * step
    )


def _nonzero(baseline: Bins) -> float:
    return sum(row[0] for name, row in baseline.items() if name != _ZERO)


def may_be_anything_below(baseline: Bins, dtype: str) -> float:
    """Below which magnitude a few values may be off by as much as they are; 0 where none is so small."""
    step = _step(baseline, dtype, lost=False)
    return _MOST_STEPS * step / _ANYTHING if step and _small(baseline, step) else 0.0


def _most(baseline: Bins) -> float:
    """The magnitude of most values, outliers aside: their rounding would let everything else be coarse."""
    rows = sorted((int(name), row[0], row[3]) for name, row in baseline.items() if name != _ZERO)
    total = sum(n for _, n, _ in rows)
    below, middle, most = 0.0, 0.0, []
    for _, n, magnitude in rows:
        if below < total / 2:
            middle = magnitude
        if below < (1 - _OUTLIERS) * total:
            most.append((n, magnitude))
        below += n
    return min(_together(most), _SPREAD * middle)


class _Below(NamedTuple):
    """The lowest bin in which many values lie, and the rms error of the few below it."""

    bin: int
    error: float


def _error_below(baseline: Bins, dtype: str) -> _Below:
    """What smaller values are off by where the error has stopped to shrink with them.

    Of a ReLU's smallest outputs there are one or two in a bin, and half of the baseline's are exact by luck.
    An error that stays while values become 16 times smaller is theirs too; a relative one would not stay.
    """
    errors = _unrounded(baseline, dtype, _FEW)
    lowest = sorted(errors)[:2]
    if len(lowest) < 2 or errors[lowest[1]] > _STAYS * errors[lowest[0]]:
        return _Below(0, 0.0)
    return _Below(lowest[0], errors[lowest[0]])


def _unrounded(baseline: Bins, dtype: str, enough: int) -> dict[int, float]:
    """The rms error beyond the rounding of the output, of bins with `enough` elements."""
    epsilon = _EPSILON.get(dtype, 2.0**-23)
    return {
        int(name): error * math.sqrt(1 - min(1.0, _ROUNDING * epsilon * magnitude / error) ** 2)
        if error
        else 0.0
        for name, (n, error, _, magnitude) in baseline.items()
        if name != _ZERO and n >= enough and not _is_subnormal(name, dtype)
    }


def normwise(allowances: dict[str, Allowance], dtype: str) -> dict[str, Allowance]:
    """The same, with every element held to what the largest values allow; flushing allows them nothing."""
    most = max((a.largest for name, a in allowances.items() if not _is_subnormal(name, dtype)), default=0.0)
    return {name: Allowance(max(most, a.rms), max(most, a.largest)) for name, a in allowances.items()}


def legal_factor(dtype: str, narrow: bool = False, baseline: Bins | None = None) -> float:
    """How many times the baseline's rounding a candidate's may be; arguments as for `allow`."""
    return _rule_for(dtype, narrow, baseline or {}).rms_factor


def at_least(baseline: Bins, other: Bins) -> Bins:
    """The baseline's errors where they are larger, in the mean or at most, and those others elsewhere."""
    made = dict(baseline)
    for name, (n, rms, largest, magnitude) in other.items():
        old = made.get(name, [n, 0.0, 0.0, magnitude])
        made[name] = [old[0], max(old[1], rms), max(old[2], largest), old[3]]
    return made


def widened(allowances: dict[str, Allowance], errors: Bins, slack: float = 1.0) -> dict[str, Allowance]:
    """The same, with errors that are legal themselves, and so many times those."""
    made = dict(allowances)
    for name, (_n, rms, largest, _magnitude) in errors.items():
        old = made.get(name, Allowance(0.0, 0.0))
        made[name] = Allowance(max(old.rms, slack * rms), max(old.largest, slack * largest))
    return made


def _rule_for(dtype: str, narrow: bool, baseline: Bins) -> _Rule:
    """By the arithmetic and not by the output's type alone: logits of a bfloat16 product may be float32."""
    visibly = narrow and relative_error(baseline)["rms"] > VISIBLY_NARROW
    return _NARROW if visibly else _rule(dtype)


def _rule(dtype: str) -> _Rule:
    return _WIDE if dtype in ("float32", "float64", "complex64", "complex128") else _NARROW


def exceeds(candidate: Bins, allowances: dict[str, Allowance]) -> tuple[str, float] | None:
    """The worst bin beyond its allowance and by what factor, or None when all are within."""
    worst: tuple[str, float] | None = None
    for name, (n, rms, largest, _magnitude) in candidate.items():
        limit = allowances.get(name)
        if limit is None:
            continue
        # One element that is off by as much as one may be makes no mean too large.
        mean = math.hypot(limit.rms, limit.largest / math.sqrt(n))
        factor = max(_times(rms, mean) if n >= 16 else 0.0, _times(largest, limit.largest))
        if factor > 1 and (worst is None or factor > worst[1]):
            worst = (name, factor)
    return worst


def _times(error: float, limit: float) -> float:
    """How many times its limit an error is; one that is no number, or has none for a limit, is beyond."""
    return error / limit if math.isfinite(error) and math.isfinite(limit) else math.inf


def elements_beyond(candidate: Bins, allowances: dict[str, Allowance]) -> float:
    """How many elements lie beyond their bin's allowance, at most."""
    beyond = 0.0
    for name, row in candidate.items():
        n, rms, _largest, magnitude = row
        limit = allowances.get(name)
        if limit is None or exceeds({name: row}, allowances) is None:
            continue
        in_mean = exceeds({name: [n, rms, 0.0, magnitude]}, allowances) is not None
        # So many squares of the limit, and no more, make up the sum of squares.
        beyond += n if in_mean or not limit.largest else n * min(1.0, rms / limit.largest) ** 2
    return beyond


def error(bins: Bins) -> float:
    """The rms error over all bins."""
    return _together([(n, rms) for n, rms, _, _ in bins.values()])


def relative_error(bins: Bins) -> dict[str, Any]:
    """One summary for people: rms error over rms of the oracle, and the largest error over it."""
    scale = _together([(n, magnitude) for n, _, _, magnitude in bins.values()])
    largest = max((row[2] for row in bins.values()), default=0.0)
    if not scale:
        return {"rms": 0.0, "max": largest}
    return {"rms": error(bins) / scale, "max": largest / scale}
