"""The quad, the unit of a comparison: four slots run in the order ABBA or BAAB, reduced to one log ratio."""

import math
from collections.abc import Sequence
from typing import Literal

from trackside.stats.spread import median

__all__ = ["Order", "pair_median", "quad_log_ratio"]

Order = Literal["ABBA", "BAAB"]


def quad_log_ratio(times: Sequence[float], order: Order) -> float:
    """ln(baseline / candidate) of one quad, A being the baseline: above 0, the candidate is faster.

    The outer and the inner slots have the same mean position, so a drift that is linear in log time cancels.
    The sign comes last, so that a swap of labels flips the result exactly.

    Args:
        times: the four slots' times in the order in which they ran, in any one unit.
        order: which arm ran in which slot.
    """
    if len(times) != 4:
        raise ValueError(f"a quad has 4 slot times, found {len(times)}")
    if not all(math.isfinite(t) and t > 0 for t in times):
        raise ValueError(f"slot times must be positive and finite, found {list(times)}")
    first, second, third, fourth = (math.log(t) for t in times)
    inner_minus_outer = ((second + third) - (first + fourth)) / 2
    if order == "ABBA":
        return -inner_minus_outer
    if order == "BAAB":
        return inner_minus_outer
    raise ValueError(f"a quad's order is ABBA or BAAB, found {order!r}")


def pair_median(log_ratios: Sequence[float], orders: Sequence[Order]) -> float:
    """A worker pair's median log ratio, freed from the effect of a slot's position.

    A delay that always hits the same slot moves ABBA quads one way and BAAB quads the other. Where that
    exceeds the noise, the quads form two clumps, and their plain median jumps to the clump that the coin
    favoured: centred over pairs, but spread as widely as the delay. The mean of the two orders' medians
    cancels the delay, and without one it is as precise as the plain median. With one order only there is
    nothing to cancel with, and the plain median is returned.
    """
    if len(log_ratios) != len(orders):
        raise ValueError(f"one order per quad: found {len(log_ratios)} ratios and {len(orders)} orders")
    unknown = set(orders) - {"ABBA", "BAAB"}
    if unknown:
        raise ValueError(f"a quad's order is ABBA or BAAB, found {sorted(unknown)}")
    abba = [d for d, order in zip(log_ratios, orders, strict=True) if order == "ABBA"]
    baab = [d for d, order in zip(log_ratios, orders, strict=True) if order == "BAAB"]
    if not abba or not baab:
        return median(log_ratios)
    return (median(abba) + median(baab)) / 2
