"""Totals that refuse what medians promise."""

import math

import pytest

from trackside.stats.intervals import Interval
from trackside.stats.totals import contradicts, falls_short, overstates, total_ratio


def _interval(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 0.95, 6)


FASTER = _interval(0.5, 0.6)


def test_total_ratio_is_baseline_over_candidate() -> None:
    assert total_ratio([2.0, 4.0], [1.0, 1.0]) == 3.0


def test_one_spike_outweighs_many_fast_calls() -> None:
    assert total_ratio([1.0] * 10, [0.1] * 9 + [20.0]) < 0.5


def test_total_ratio_needs_the_same_number_of_positive_times() -> None:
    with pytest.raises(ValueError, match="found 2 and 1"):
        total_ratio([1.0, 1.0], [1.0])
    with pytest.raises(ValueError, match="found 0 and 0"):
        total_ratio([], [])
    with pytest.raises(ValueError, match="positive and finite"):
        total_ratio([1.0], [0.0])


@pytest.mark.parametrize(
    ("total", "why"),
    [
        (_interval(-0.3, -0.1), "certainly slower in total"),
        (_interval(-0.02, 0.03), "work postponed: no gain in total, and the median's gain excluded"),
        (_interval(0.1, 0.2), "a gain of less than half of what the medians promise is another claim"),
    ],
)
def test_totals_refuse_a_faster_median(total: Interval, why: str) -> None:
    assert contradicts(FASTER, total), why


@pytest.mark.parametrize(
    ("low", "pooled", "short"),
    [(0.5, -0.7, True), (0.5, 0.24, True), (0.5, 0.26, False), (0.04, -0.5, False), (0.06, 0.02, True)],
)
def test_the_sum_over_all_pairs_must_show_half_of_the_gain(low: float, pooled: float, short: bool) -> None:
    assert falls_short(_interval(low, low + 0.1), pooled) is short


@pytest.mark.parametrize(
    ("total", "why"),
    [
        (_interval(0.45, 0.62), "totals agree"),
        (_interval(-0.4, 0.9), "totals too noisy to disagree"),
        (_interval(-0.9, 0.8), "estimated as slower, but as likely by noise"),
        (_interval(0.27, 0.35), "a smaller gain in total is still a gain"),
        (_interval(-math.inf, math.inf), "nothing known about the totals"),
    ],
)
def test_totals_let_a_faster_median_stand(total: Interval, why: str) -> None:
    if math.isinf(total.low):
        total = Interval(0.5, -math.inf, math.inf, 0.95, 1)
    assert not contradicts(FASTER, total), why


def test_a_median_that_is_not_faster_is_contradicted_only_by_totals_that_are_certainly_slower() -> None:
    undecided = _interval(-0.1, 0.3)
    assert contradicts(undecided, _interval(-0.3, -0.1))
    assert not contradicts(undecided, _interval(-0.3, 0.1))
    assert not contradicts(_interval(-0.5, -0.4), _interval(-0.3, -0.1))


def test_a_median_overstates_only_when_the_intervals_are_apart() -> None:
    assert overstates(FASTER, _interval(0.1, 0.2))
    assert not overstates(FASTER, _interval(0.1, 0.55))
    assert not overstates(FASTER, _interval(0.7, 0.8))
