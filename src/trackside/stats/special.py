"""The incomplete beta function and the quantiles built on it, so that SciPy is not needed at run time."""

import math
from functools import lru_cache

__all__ = ["betainc", "betaincinv", "t_quantile"]

# The continued fraction needs about sqrt(max(a, b)) terms; this allows a and b beyond 1e8.
_MAX_TERMS = 100_000
_TINY = 1e-300


def betainc(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b): the Beta(a, b) distribution function at x."""
    if not 0 <= x <= 1:
        raise ValueError(f"x must lie in [0, 1], found {x}")
    return _betainc(a, b, x, 1 - x)


def betaincinv(a: float, b: float, p: float) -> float:
    """The x at which betainc(a, b, x) reaches p: the Beta(a, b) quantile."""
    if not 0 <= p <= 1:
        raise ValueError(f"p must lie in [0, 1], found {p}")
    _check_shape(a, b)
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        if betainc(a, b, middle) < p:
            low = middle
        else:
            high = middle
    return high if p > 0 else 0.0


@lru_cache(maxsize=256)
def t_quantile(p: float, df: float) -> float:
    """Quantile of Student's t with df degrees of freedom."""
    if not 0 < p < 1:
        raise ValueError(f"p must lie strictly between 0 and 1, found {p}")
    if not (math.isfinite(df) and df > 0):
        raise ValueError(f"degrees of freedom must be positive and finite, found {df}")
    if p == 0.5:
        return 0.0
    tail = min(p, 1 - p)
    high = 1.0
    while _t_tail(high, df) > tail:
        high *= 2
    low = 0.0
    while low < (middle := (low + high) / 2) < high:
        if _t_tail(middle, df) > tail:
            low = middle
        else:
            high = middle
    return high if p > 0.5 else -high


def _t_tail(t: float, df: float) -> float:
    """P(T > t) for t > 0."""
    square = t * t
    # Both x and 1 - x are formed directly: for many degrees of freedom subtraction would lose 1 - x.
    return _betainc(df / 2, 0.5, df / (df + square), square / (df + square)) / 2


def _check_shape(a: float, b: float) -> None:
    if not (math.isfinite(a) and math.isfinite(b) and a > 0 and b > 0):
        raise ValueError(f"a and b must be positive and finite, found {a} and {b}")


def _betainc(a: float, b: float, x: float, y: float) -> float:
    """I_x(a, b) with y = 1 - x given by the caller."""
    _check_shape(a, b)
    if x == 0:
        return 0.0
    if y == 0:
        return 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(y)
    front = math.exp(log_front)
    # The fraction converges fast only left of about the mean; I_x(a, b) = 1 - I_y(b, a) covers the rest.
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, y) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of I_x(a, b), evaluated from the front by Lentz's method."""
    c = 1.0
    d = 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > _TINY else _TINY)
    value = d
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 + term * d
            d = 1 / (d if abs(d) > _TINY else _TINY)
            c = 1 + term / c
            c = c if abs(c) > _TINY else _TINY
            value *= c * d
        # Less than this and rounding could keep the last bit from ever settling.
        if abs(c * d - 1) < 4e-16:
            return value
    raise ArithmeticError(f"the incomplete beta function did not converge at a={a}, b={b}, x={x}")
