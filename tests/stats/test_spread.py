"""Robust location and spread."""

import numpy as np
import pytest
from scipy import stats as reference

from trackside.stats.spread import (
    iqr_rel,
    mad,
    median,
    quads_for_half_width,
    quantile,
    robust_sigma,
)


def test_median_and_mad_ignore_one_wild_value() -> None:
    assert median([1.0, 2.0, 3.0, 4.0, 1e9]) == 3.0
    assert mad([1.0, 2.0, 3.0, 4.0, 1e9]) == 1.0


def test_robust_sigma_estimates_a_normal_standard_deviation() -> None:
    sample = np.random.default_rng(2).normal(5, 0.3, 20_000)
    assert robust_sigma(sample) == pytest.approx(0.3, rel=0.03)


def test_quantile_interpolates_between_neighbours() -> None:
    assert quantile([10.0, 20.0, 30.0], 0.25) == 15.0
    assert quantile([10.0, 20.0, 30.0], 1.0) == 30.0


def test_iqr_rel_is_the_same_in_any_unit() -> None:
    values = [1.0, 1.1, 1.2, 1.5, 2.0]
    assert iqr_rel(values) == pytest.approx(0.4 / 1.2)
    assert iqr_rel([v * 1e6 for v in values]) == pytest.approx(iqr_rel(values))


@pytest.mark.parametrize("pairs", [2, 6, 8])
def test_quads_for_half_width_give_an_interval_over_the_pairs_medians_as_narrow_as_asked(pairs: int) -> None:
    sigma, half_width, runs = 0.03, 0.05 if pairs == 2 else 0.003, 4000
    quads = quads_for_half_width(sigma, half_width, pairs)
    rng = np.random.default_rng(pairs)
    medians = np.array([np.median(rng.normal(0, sigma, (pairs, quads)), axis=1) for _ in range(runs)])
    found = reference.t.ppf(0.975, pairs - 1) * medians.std(axis=1, ddof=1) / np.sqrt(pairs)
    # In the root mean square, since the mean of a standard deviation from two values is 20 % short of it.
    assert np.sqrt(np.mean(found**2)) == pytest.approx(half_width, rel=0.04)


def test_quads_for_half_width_grow_with_the_square_of_the_spread_and_are_never_less_than_one() -> None:
    once, twice = (quads_for_half_width(sigma, 0.003, 6) for sigma in (0.03, 0.06))
    assert twice == pytest.approx(4 * once, abs=4)
    assert quads_for_half_width(0.0, 0.01, 6) == 1
    assert quads_for_half_width(1e-9, 0.01, 6) == 1


def test_empty_and_non_finite_data_are_refused() -> None:
    for function in (median, mad, robust_sigma, iqr_rel):
        with pytest.raises(ValueError, match="at least one value"):
            function([])
        with pytest.raises(ValueError, match="finite"):
            function([1.0, float("nan")])


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="positive median"):
        iqr_rel([-1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="p must lie"):
        quantile([1.0], 1.5)


@pytest.mark.parametrize(
    ("sigma", "half_width", "pairs", "why"),
    [
        (0.01, 0.01, 1, "at least two pairs, found 1"),
        (-0.01, 0.01, 6, "found -0.01"),
        (float("nan"), 0.01, 6, "found nan"),
        (float("inf"), 0.01, 6, "found inf"),
        (0.01, 0.0, 6, "0.01 and 0.0"),
        (0.01, float("nan"), 6, "0.01 and nan"),
    ],
)
def test_quads_for_half_width_refuse_what_makes_no_interval(
    sigma: float, half_width: float, pairs: int, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        quads_for_half_width(sigma, half_width, pairs)
