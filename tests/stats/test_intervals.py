"""t, Clopper-Pearson and the sign-test confidence sequence."""

import math

import numpy as np
import pytest
from scipy import stats as reference

from trackside.stats.intervals import (
    RunningSignSequence,
    balanced_interval,
    clopper_pearson,
    sign_sequence,
    t_interval,
)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_t_interval_agrees_with_scipy(confidence: float) -> None:
    values = np.random.default_rng(3).normal(0.02, 0.01, 6).tolist()
    low, high = reference.t.interval(confidence, 5, loc=np.mean(values), scale=reference.sem(values))
    found = t_interval(values, confidence)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-10)
    assert (found.n, found.confidence) == (6, confidence)
    assert found.mid == pytest.approx(np.mean(values))


def test_t_interval_of_negated_values_is_exactly_negated() -> None:
    values = np.random.default_rng(4).normal(0.02, 0.01, 7).tolist()
    there, back = t_interval(values), t_interval([-v for v in values])
    assert (back.mid, back.low, back.high) == (-there.mid, -there.high, -there.low)


def test_one_value_says_nothing_about_its_spread() -> None:
    found = t_interval([0.3])
    assert (found.mid, found.low, found.high) == (0.3, -math.inf, math.inf)


def test_equal_values_have_an_interval_of_no_width() -> None:
    found = t_interval([0.1] * 6)
    assert found.low == found.mid == found.high


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf, 1.0]])
def test_t_interval_refuses_empty_and_non_finite_values(values: list[float]) -> None:
    with pytest.raises(ValueError, match="an interval needs"):
        t_interval(values)


@pytest.mark.parametrize("confidence", [0.9, 0.95])
@pytest.mark.parametrize(
    ("k", "n"), [(0, 1), (1, 1), (0, 100), (3, 100), (11, 100), (50, 100), (100, 100), (1, 5000)]
)
def test_clopper_pearson_agrees_with_scipy(k: int, n: int, confidence: float) -> None:
    # Not through binomtest, whose root finder stops at 1e-12: its error is 2e-9 of the bound at 1 of 5000.
    tail = (1 - confidence) / 2
    low = float(reference.beta.ppf(tail, k, n - k + 1)) if k else 0.0
    high = float(reference.beta.ppf(1 - tail, k + 1, n - k)) if k < n else 1.0
    found = clopper_pearson(k, n, confidence)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-10)
    assert found.mid == k / n


@pytest.mark.parametrize(("k", "n"), [(0, 0), (3, 2), (-1, 5)])
def test_clopper_pearson_refuses_impossible_counts(k: int, n: int) -> None:
    with pytest.raises(ValueError, match="0 <= k <= n"):
        clopper_pearson(k, n)


@pytest.mark.parametrize("share", [0.0, 1.0, 95.0])
def test_a_confidence_that_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        t_interval([1.0, 2.0], share)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        clopper_pearson(1, 2, share)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        sign_sequence([1.0, 2.0], share)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        RunningSignSequence(share)


@pytest.mark.parametrize(("n", "rank"), [(12, 1), (20, 3), (30, 7), (40, 11), (80, 27), (120, 44), (200, 79)])
def test_sign_sequence_uses_the_published_order_statistics(n: int, rank: int) -> None:
    shuffled = np.random.default_rng(n).permutation(np.arange(1.0, n + 1)).tolist()
    assert sign_sequence(shuffled, alpha=0.05) == (rank, n + 1 - rank)


def test_sign_sequence_knows_nothing_before_twelve_quads() -> None:
    for n in range(12):
        assert sign_sequence([0.1] * n) == (-math.inf, math.inf)


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.001])
@pytest.mark.parametrize("n", [1, 2, 3, 13, 14, 57, 150])
def test_sign_sequence_keeps_exactly_the_ratios_with_little_evidence_against_them(
    n: int, alpha: float
) -> None:
    values = np.arange(1.0, n + 1)

    def evidence(theta: float) -> float:
        k = int(np.count_nonzero(values > theta))
        return 2.0**n * math.exp(
            math.lgamma(k + 5)
            + math.lgamma(n - k + 5)
            - math.lgamma(n + 10)
            - 2 * math.lgamma(5)
            + math.lgamma(10)
        )

    low, high = sign_sequence(values.tolist(), alpha)
    # Ratios between order statistics, so that no value ties with them.
    for theta in np.arange(0.5, n + 1):
        assert (low < theta < high) == (evidence(float(theta)) < 1 / alpha)


def test_sign_sequence_refuses_values_that_are_not_finite() -> None:
    with pytest.raises(ValueError, match="finite"):
        sign_sequence([1.0, math.nan])
    with pytest.raises(ValueError, match="finite"):
        RunningSignSequence().add(math.nan)


def test_running_sequence_is_the_intersection_of_all_looks() -> None:
    values = np.random.default_rng(6).normal(0.01, 0.02, 150).tolist()
    running = RunningSignSequence()
    low, high = -math.inf, math.inf
    for n, d in enumerate(values, start=1):
        present = sign_sequence(values[:n])
        low, high = max(low, present[0]), min(high, present[1])
        assert running.add(d) == (low, high)
        assert running.n == n
    assert low < 0.01 < high
    assert not running.drifted


def test_running_sequence_says_when_the_ratio_moved_instead_of_returning_an_empty_interval() -> None:
    rng = np.random.default_rng(7)
    running = RunningSignSequence()
    for d in (*rng.normal(-0.1, 0.001, 60), *rng.normal(0.1, 0.001, 400)):
        low, high = running.add(float(d))
        assert low <= high
    assert running.drifted
    assert low > 0.05


def test_a_balanced_interval_is_that_of_the_groups_difference_by_hand() -> None:
    values, groups = [1.0, 5.0, 1.2, 5.4, 0.8, 4.6], ["a", "b"] * 3
    found = balanced_interval(values, groups)
    # Deviations in the groups are 0, .2, -.2 and 0, .4, -.4: a variance of 0.4 / 4. t(4) at 97.5 % is 2.776.
    half = 2.7764 * math.sqrt(0.1 * (1 / 3 + 1 / 3)) / 2
    assert (found.mid, found.df) == (pytest.approx(3.0), 4)
    assert found.high - found.mid == pytest.approx(half, rel=1e-4)


def test_too_few_values_or_a_group_of_one_have_the_plain_interval() -> None:
    for values, groups in (([1.0, 2.0, 4.0, 5.0], "abab"), ([1.0, 2.0, 4.0, 5.0, 7.0, 8.0], "abbbbb")):
        assert balanced_interval(values, list(groups)) == t_interval(values)
    with pytest.raises(ValueError, match="each value needs its group"):
        balanced_interval([1.0, 2.0], ["a"])


def test_a_weighted_interval_is_that_of_weighted_least_squares() -> None:
    rng = np.random.default_rng(3)
    values, weights = rng.normal(1, 0.2, 9), rng.uniform(0.1, 3, 9)
    groups = ["a", "b"] * 4 + ["a"]
    sides = [1.0 if g == "a" else -1.0 for g in groups]
    for design, found in (
        (np.ones((9, 1)), t_interval(list(values), weights=list(weights))),
        (np.stack([np.ones(9), sides], 1), balanced_interval(list(values), groups, weights=list(weights))),
    ):
        inverse = np.linalg.inv(design.T @ (weights[:, None] * design))
        solved = inverse @ design.T @ (weights * values)
        df = 9 - design.shape[1]
        variance = float(weights @ (values - design @ solved) ** 2) / df * inverse[0, 0]
        half = float(reference.t.ppf(0.975, df)) * math.sqrt(variance)
        # Wider by what these weights would hide if all values varied alike.
        hat = design @ inverse @ (design.T * weights)
        alike = (inverse @ (design.T * weights**2) @ design @ inverse)[0, 0]
        shown = float(weights @ np.sum((np.eye(9) - hat) ** 2, axis=1)) / df * inverse[0, 0]
        assert alike > shown
        assert (found.mid, found.df) == (pytest.approx(solved[0]), df)
        assert found.high - found.mid == pytest.approx(half * math.sqrt(alike / shown))


@pytest.mark.parametrize(("noise", "process"), [(0.08, 0.0), (0.08, 0.02), (0.0, 0.01)])
def test_unequal_pairs_have_intervals_that_miss_as_often_as_they_say(noise: float, process: float) -> None:
    """Of 4,000 draws 200 should miss; 260 would be more than four standard deviations."""
    rng = np.random.default_rng(7)
    groups, missed = ["a", "b"] * 6, 0
    for _ in range(4000):
        quads = rng.integers(3, 45, 12)
        values = rng.normal(0, process, 12) + rng.normal(0, 1, 12) * noise / np.sqrt(quads)
        found = balanced_interval(list(values), groups, weights=list(quads / (quads + 20)))
        missed += not found.low <= 0 <= found.high
    assert 130 < missed < 260


def test_weights_that_are_missing_or_not_positive_are_refused() -> None:
    for weights in ([1.0], [1.0, 0.0], [1.0, math.inf]):
        with pytest.raises(ValueError, match="as many positive weights"):
            t_interval([1.0, 2.0], weights=weights)
