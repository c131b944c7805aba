"""Total times against medians: only the totals show work that is saved up for rare slow calls."""

import math
from collections.abc import Sequence

from trackside.stats.intervals import Interval

__all__ = ["contradicts", "falls_short", "overstates", "total_ratio"]

# Noise moved the sum of all times by 1 % (the standard deviation of 55 comparisons on two shared cores):
# smaller gains are left to the intervals.
_WORTH_ASKING = math.log(1.05)


def total_ratio(base_times: Sequence[float], cand_times: Sequence[float]) -> float:
    """Baseline's summed time over the candidate's, for one worker pair.

    Pass every slot, those of dropped quads too: a spike spent waiting looks like a disturbance, and the rule
    that drops disturbed quads would remove the very calls this is meant to see.
    """
    if len(base_times) != len(cand_times) or len(base_times) == 0:
        raise ValueError(
            f"totals need as many baseline as candidate times, found {len(base_times)} and {len(cand_times)}"
        )
    if not all(math.isfinite(t) and t > 0 for times in (base_times, cand_times) for t in times):
        raise ValueError("times must be positive and finite")
    return math.fsum(base_times) / math.fsum(cand_times)


def overstates(median_interval: Interval, total: Interval) -> bool:
    """Whether the medians promise more than the totals deliver, beyond what either interval allows."""
    return total.high < median_interval.low


def falls_short(median_interval: Interval, pooled: float) -> bool:
    """Whether the times of all pairs, summed up, deliver less than half of the gain that the medians promise.

    A few pairs with huge calls widen the interval of the pairs' totals until it contradicts nothing; the sum
    over all pairs has them in it all the same.

    Args:
        pooled: ln(baseline / candidate) of the sums over all pairs.
    """
    return median_interval.low > _WORTH_ASKING and pooled < median_interval.low / 2


def contradicts(median_interval: Interval, total: Interval) -> bool:
    """Whether the totals refuse a `faster` that the medians suggest.

    Both are t intervals of ln(baseline / candidate) over the same worker pairs: over the pairs' medians, and
    over the logs of the pairs' `total_ratio`. The totals refuse when they are slower beyond doubt, or when
    they show no gain and exclude the one that the medians show, as with work that is merely postponed. That
    their estimate lies below 0 is no reason: heavy-tailed noise does that to 9-36 % of honest 2 % gains.
    """
    if median_interval.mid > 0 and total.high < 0:
        return True
    if median_interval.low > 0:
        # A gain that is there, but less than half of what the medians promise, is another claim.
        return overstates(median_interval, total) and (total.low <= 0 or total.high < median_interval.low / 2)
    return False
