"""Location and spread that a few disturbed samples cannot move, and how many quads a spread calls for."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trackside.stats.special import t_quantile

__all__ = ["iqr_rel", "mad", "median", "quads_for_half_width", "quantile", "robust_sigma"]

# A normal distribution's standard deviation over its median absolute deviation.
_SIGMA_PER_MAD = 1.4826

_Values = Sequence[float] | npt.NDArray[np.float64]


def median(values: _Values) -> float:
    return float(np.median(_checked(values)))


def quantile(values: _Values, p: float) -> float:
    """The p-quantile, interpolated linearly between neighbouring order statistics."""
    if not 0 <= p <= 1:
        raise ValueError(f"p must lie in [0, 1], found {p}")
    return float(np.quantile(_checked(values), p))


def mad(values: _Values) -> float:
    """Median absolute deviation from the median, unscaled; `robust_sigma` is the scaled one."""
    data = _checked(values)
    return float(np.median(np.abs(data - np.median(data))))


def robust_sigma(values: _Values) -> float:
    """Standard deviation as estimated from the median absolute deviation."""
    return _SIGMA_PER_MAD * mad(values)


def iqr_rel(values: _Values) -> float:
    """Interquartile range over the median: what records call `spread`."""
    data = _checked(values)
    low, middle, high = (float(q) for q in np.quantile(data, (0.25, 0.5, 0.75)))
    if middle <= 0:
        raise ValueError(f"a relative spread needs a positive median, found {middle}")
    return (high - low) / middle


def quads_for_half_width(sigma: float, half_width: float, pairs: int) -> int:
    """Quads for each of `pairs` worker pairs, after which the t interval over their medians is that narrow.

    It goes by the spread inside the pairs alone: what differs between them, no number of quads makes smaller.
    """
    if pairs < 2:
        raise ValueError(f"an interval needs at least two pairs, found {pairs}")
    if not (math.isfinite(sigma) and sigma >= 0 and half_width > 0):
        raise ValueError(f"needed a spread and a positive half-width, found {sigma} and {half_width}")
    # A median of n varies by sqrt(pi/2n) of the spread.
    scale = t_quantile(0.975, pairs - 1) * math.sqrt(math.pi / 2 / pairs)
    return max(1, math.ceil((scale * sigma / half_width) ** 2))


def _checked(values: _Values) -> npt.NDArray[np.float64]:
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        raise ValueError("needed at least one value, found none")
    if not np.isfinite(data).all():
        raise ValueError("needed finite values; drop or refuse the others first")
    return data
