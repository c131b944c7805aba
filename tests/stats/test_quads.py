"""One quad's log ratio, and the median of a worker pair's quads."""

import math
import random

import pytest

from trackside.stats.quads import Order, pair_median, quad_log_ratio


def test_a_candidate_twice_as_fast_gives_log_two_in_both_orders() -> None:
    assert quad_log_ratio([2.0, 1.0, 1.0, 2.0], "ABBA") == pytest.approx(math.log(2))
    assert quad_log_ratio([1.0, 2.0, 2.0, 1.0], "BAAB") == pytest.approx(math.log(2))


def test_swapping_the_labels_flips_the_sign_exactly() -> None:
    rng = random.Random(1)
    for _ in range(200):
        times = [rng.lognormvariate(0, 1) for _ in range(4)]
        assert quad_log_ratio(times, "ABBA") == -quad_log_ratio(times, "BAAB")


def test_running_a_quad_backwards_changes_nothing() -> None:
    times = [1.1, 0.9, 1.3, 1.7]
    assert quad_log_ratio(times[::-1], "ABBA") == pytest.approx(quad_log_ratio(times, "ABBA"), abs=1e-15)


@pytest.mark.parametrize("order", ["ABBA", "BAAB"])
@pytest.mark.parametrize("slope", [-0.3, 0.001, 0.2])
def test_a_drift_linear_in_log_time_cancels(order: Order, slope: float) -> None:
    drift = [math.exp(slope * slot) for slot in range(4)]
    speeds = {"A": 1.5, "B": 1.2}
    times = [speeds[arm] * factor for arm, factor in zip(order, drift, strict=True)]
    assert quad_log_ratio(times, order) == pytest.approx(math.log(1.5 / 1.2), abs=1e-15)


def test_the_unit_of_time_does_not_matter() -> None:
    times = [1.0, 2.0, 3.0, 5.0]
    in_ns = [t * 1e9 for t in times]
    assert quad_log_ratio(in_ns, "ABBA") == pytest.approx(quad_log_ratio(times, "ABBA"), abs=1e-14)


@pytest.mark.parametrize(
    "times", [[1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0], [1.0, math.inf, 1, 1], [math.nan] * 4]
)
def test_times_that_cannot_be_times_are_refused(times: list[float]) -> None:
    with pytest.raises(ValueError, match="slot times"):
        quad_log_ratio(times, "ABBA")


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ValueError, match="found 'ABAB'"):
        quad_log_ratio([1.0] * 4, "ABAB")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ABAB"):
        pair_median([0.0], ["ABAB"])  # type: ignore[list-item]


def test_pair_median_cancels_a_delay_of_one_slot_whatever_the_coin_gave() -> None:
    delay = 0.1
    abba: Order = "ABBA"
    orders: list[Order] = [abba if quad < 7 else "BAAB" for quad in range(10)]
    shifted = [0.02 + (delay if order == "ABBA" else -delay) for order in orders]
    assert pair_median(shifted, orders) == pytest.approx(0.02)


def test_pair_median_of_one_order_is_the_plain_median() -> None:
    assert pair_median([3.0, 1.0, 2.0], ["BAAB"] * 3) == 2.0


def test_pair_median_refuses_orders_that_do_not_match_the_ratios() -> None:
    with pytest.raises(ValueError, match="2 ratios and 1 orders"):
        pair_median([0.1, 0.2], ["ABBA"])
