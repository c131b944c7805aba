"""What error is allowed: a multiple of the baseline's own, per bin of magnitude, with a floor in ulps.

Measured reasons: one global factor of 16 accepts int8 for bf16 and half of exp zeroed, and refuses an
honest one-pass variance. Reordered fp32 sums make 0.4-8.7 times the baseline's error; TF32 830 times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Allowance",
    "Bins",
    "allow",
    "elements_beyond",
    "exceeds",
    "legal_factor",
    "merge",
    "relative_error",
    "widened",
]

Bins = dict[str, list[float]]
"""Bin number -> count, sum of squared errors, largest error, sum of squared oracle values."""

_ZERO_BIN = "539"
# Below this many elements a bin's own error is luck; its neighbours (a factor of 16 away) are asked too.
_FEW = 256
_FEW_SUBNORMALS = 0.05


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
    for name, (n, squares, largest, power) in more.items():
        old = into.setdefault(name, [0.0, 0.0, 0.0, 0.0])
        old[0] += n
        old[1] += squares
        old[2] = max(old[2], largest)
        old[3] += power


def allow(
    baseline: Bins, dtype: str, declared: dict[str, float] | None = None, flushed: bool = False
) -> dict[str, Allowance]:
    """The allowance of every bin that the baseline's calls have met.

    `declared` is the workload's own tolerance, relative to the bin's magnitude: `rms` and `max`. It is
    widened where the baseline itself would break it: a result of cancellation is small, its error is not.
    Where subnormals may be `flushed`, they may be however many there are.
    """
    rule = _rule(dtype)
    epsilon, smallest = _EPSILON.get(dtype, 2.0**-23), _SMALLEST.get(dtype, 2.0**-126)
    total_n = sum(b[0] for b in baseline.values())
    overall = math.sqrt(sum(b[3] for b in baseline.values()) / total_n) if total_n else 0.0
    # Flushing a few subnormals to zero is what fast exponentials do; a task made of them is about them.
    subnormal = sum(n for n, _, _, power in baseline.values() if 0 < power <= n * smallest**2)
    few = flushed or subnormal <= _FEW_SUBNORMALS * total_n
    absolute = smallest if few else 4 * smallest * epsilon
    allowances = {}
    for name, (n, squares, largest, power) in baseline.items():
        # An exact zero has no magnitude of its own: one epsilon of the whole leaf's.
        scale = overall / rule.max_floor if name == _ZERO_BIN else math.sqrt(power / n)
        if n < _FEW and name != _ZERO_BIN:
            for other in (str(int(name) - 1), str(int(name) + 1)):
                if other in baseline:
                    n += baseline[other][0]
                    squares += baseline[other][1]
                    largest = max(largest, baseline[other][2])
        rms = max(rule.rms_factor * math.sqrt(squares / n), rule.rms_floor * epsilon * scale)
        most = max(rule.max_factor * largest, rule.max_floor * epsilon * scale)
        if declared is not None:
            magnitude = overall if name == _ZERO_BIN else scale
            rms = max(declared["rms"] * magnitude, _LUCK.rms_factor * math.sqrt(squares / n))
            most = max(declared["max"] * magnitude, _LUCK.max_factor * largest)
        allowances[name] = Allowance(rms + absolute, most + absolute)
    return allowances


def legal_factor(dtype: str) -> float:
    """How many times the baseline's rounding a candidate's may be."""
    return _rule(dtype).rms_factor


def widened(allowances: dict[str, Allowance], errors: Bins) -> dict[str, Allowance]:
    """The same, with errors that are legal themselves."""
    made = dict(allowances)
    for name, (n, squares, largest, _power) in errors.items():
        old = made.get(name, Allowance(0.0, 0.0))
        made[name] = Allowance(max(old.rms, math.sqrt(squares / n)), max(old.largest, largest))
    return made


def _rule(dtype: str) -> _Rule:
    return _WIDE if dtype in ("float32", "float64", "complex64", "complex128") else _NARROW


def exceeds(candidate: Bins, allowances: dict[str, Allowance]) -> tuple[str, float] | None:
    """The worst bin beyond its allowance and by what factor, or None when all are within."""
    worst: tuple[str, float] | None = None
    for name, (n, squares, largest, _power) in candidate.items():
        limit = allowances.get(name)
        if limit is None:
            continue
        factor = max(math.sqrt(squares / n) / limit.rms if n >= 16 else 0.0, largest / limit.largest)
        if factor > 1 and (worst is None or factor > worst[1]):
            worst = (name, factor)
    return worst


def elements_beyond(candidate: Bins, allowances: dict[str, Allowance]) -> float:
    """How many elements lie beyond their bin's allowance, at most."""
    beyond = 0.0
    for name, row in candidate.items():
        n, squares, _largest, power = row
        limit = allowances.get(name)
        if limit is None or exceeds({name: row}, allowances) is None:
            continue
        in_mean = exceeds({name: [n, squares, 0.0, power]}, allowances) is not None
        # So many squares of the limit, and no more, make up the sum of squares.
        beyond += n if in_mean or not limit.largest else min(n, squares / limit.largest**2)
    return beyond


def relative_error(bins: Bins) -> dict[str, Any]:
    """One summary for people: rms error over rms of the oracle, and the largest error over it."""
    n = sum(b[0] for b in bins.values())
    power = sum(b[3] for b in bins.values())
    if not n or not power:
        return {"rms": 0.0, "max": max((b[2] for b in bins.values()), default=0.0)}
    scale = math.sqrt(power / n)
    return {
        "rms": math.sqrt(sum(b[1] for b in bins.values()) / n) / scale,
        "max": max(b[2] for b in bins.values()) / scale,
    }
