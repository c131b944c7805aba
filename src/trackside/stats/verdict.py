"""What an interval of log ratios says about two programs' speed."""

import math
from typing import Literal

from trackside.stats.intervals import Interval, at_confidence

__all__ = ["PROOF", "PROVING_PAIRS", "SpeedVerdict", "classify"]

PROOF = 0.99
"""A difference is called one when the interval at this confidence excludes none; at the 95 % that is shown,
one identical program in twenty would be called faster or slower."""
PROVING_PAIRS = 3
"""Fewer pairs prove nothing, so their first impression is read off the interval as shown."""

SpeedVerdict = Literal["equivalent", "faster", "slower", "inconclusive"]


def classify(interval: Interval, delta: float) -> SpeedVerdict:
    """The verdict on an interval of ln(baseline / candidate); a relative difference up to delta is no news.

    Equivalence comes first: a difference smaller than delta is not sold as a gain. What is left is
    inconclusive, never "the same".
    """
    if not (math.isfinite(delta) and delta >= 0):
        raise ValueError(f"delta must be finite and not negative, found {delta}")
    if not interval.low <= interval.high:
        raise ValueError(f"an interval's low must not exceed its high, found {interval}")
    margin = math.log1p(delta)
    if -margin <= interval.low and interval.high <= margin:
        return "equivalent"
    proof = at_confidence(interval, PROOF) if interval.n >= PROVING_PAIRS else interval
    if proof.low > 0:
        return "faster"
    if proof.high < 0:
        return "slower"
    return "inconclusive"
