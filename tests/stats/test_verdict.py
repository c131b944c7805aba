"""From an interval to a verdict."""

import math

import pytest

from trackside.stats.intervals import Interval, at_confidence, t_interval
from trackside.stats.verdict import SpeedVerdict, classify


def _interval(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 0.95, 6, 5)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.05, 0.10, "faster"),
        (-0.10, -0.05, "slower"),
        (0.001, 0.10, "inconclusive"),
        (0.03, 0.10, "faster"),
        (-0.10, -0.001, "inconclusive"),
        (-0.10, -0.03, "slower"),
        (-0.01, 0.10, "inconclusive"),
        (-0.10, 0.01, "inconclusive"),
        (-0.01, 0.01, "equivalent"),
        (0.005, 0.015, "equivalent"),
        (-0.015, -0.005, "equivalent"),
        (0.0, 0.10, "inconclusive"),
        (-0.10, 0.0, "inconclusive"),
        (-math.inf, math.inf, "inconclusive"),
    ],
)
def test_verdict_at_two_percent(low: float, high: float, verdict: SpeedVerdict) -> None:
    assert classify(_interval(low, high), 0.02) == verdict


def test_the_margin_is_the_log_of_one_plus_delta_on_both_sides() -> None:
    margin = math.log1p(0.02)
    assert classify(_interval(-margin, margin), 0.02) == "equivalent"
    assert classify(_interval(-margin, math.nextafter(margin, 1)), 0.02) == "inconclusive"
    assert classify(_interval(math.nextafter(-margin, -1), margin), 0.02) == "inconclusive"


def test_a_difference_needs_the_99_percent_interval_where_there_are_pairs_enough() -> None:
    values = [0.001, 0.004, 0.009, 0.012, 0.021, 0.025]
    shown, proof = t_interval(values), t_interval(values, 0.99)
    assert proof.low < 0 < shown.low
    wider = at_confidence(shown, 0.99)
    assert (wider.low, wider.high) == pytest.approx((proof.low, proof.high))
    assert classify(shown, 0.001) == "inconclusive"
    assert classify(t_interval([0.20, 0.21]), 0.001) == "faster"


def test_exchanging_baseline_and_candidate_mirrors_the_verdict() -> None:
    mirror = {
        "faster": "slower",
        "slower": "faster",
        "equivalent": "equivalent",
        "inconclusive": "inconclusive",
    }
    for low in (-0.1, -0.015, 0.0, 0.015, 0.1):
        for width in (0.0, 0.02, 0.3):
            there = classify(_interval(low, low + width), 0.02)
            assert classify(_interval(-(low + width), -low), 0.02) == mirror[there]


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="low must not exceed"):
        classify(_interval(0.2, 0.1), 0.02)
    with pytest.raises(ValueError, match="low must not exceed"):
        classify(_interval(math.nan, 0.1), 0.02)
    with pytest.raises(ValueError, match="delta"):
        classify(_interval(0.1, 0.2), -0.01)
