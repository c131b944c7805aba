"""What an interval of log ratios says about two programs' speed."""

import math
from typing import Literal

from trackside.stats.intervals import Interval

__all__ = ["SpeedVerdict", "classify"]

SpeedVerdict = Literal["equivalent", "faster", "slower", "inconclusive"]


def classify(interval: Interval, delta: float) -> SpeedVerdict:
    """The verdict on an interval of ln(baseline / candidate); a relative difference up to delta is no news.

    Equivalence comes first: a difference proved smaller than delta is not sold as a gain. What is left is
    inconclusive, never "the same".
    """
    if not (math.isfinite(delta) and delta >= 0):
        raise ValueError(f"delta must be finite and not negative, found {delta}")
    if not interval.low <= interval.high:
        raise ValueError(f"an interval's low must not exceed its high, found {interval}")
    margin = math.log1p(delta)
    if -margin <= interval.low and interval.high <= margin:
        return "equivalent"
    if interval.low > 0:
        return "faster"
    if interval.high < 0:
        return "slower"
    return "inconclusive"
