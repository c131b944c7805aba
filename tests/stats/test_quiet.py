"""Dropping disturbed quads without looking at who gains."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats as reference

from trackside.stats.quiet import (
    arm_disturbances,
    disturbed_share,
    fisher_exact,
    keep_quiet,
    length_odds,
    waiting,
)


def _arms(quads: int, seed: int = 0) -> npt.NDArray[np.str_]:
    coin = np.random.default_rng(seed).integers(0, 2, quads)
    return np.where(coin[:, None] == 0, np.array(list("ABBA")), np.array(list("BAAB")))


def _exchange(arms: npt.NDArray[np.str_]) -> npt.NDArray[np.str_]:
    return np.where(arms == "A", "B", "A")


def test_a_quad_with_one_disturbed_slot_is_dropped_whole() -> None:
    ratios = np.ones((10, 4))
    ratios[3, 2] = 1.05
    assert np.flatnonzero(~keep_quiet(ratios, _arms(10))).tolist() == [3]


def test_each_arm_is_held_against_its_own_median() -> None:
    arms = _arms(10)
    ratios = np.where(arms == "A", 1.0, 1.4)
    assert keep_quiet(ratios, arms).all()
    ratios[0, np.flatnonzero(arms[0] == "A")[0]] = 1.1
    assert np.flatnonzero(~keep_quiet(ratios, arms)).tolist() == [0]


def test_a_slot_exactly_at_the_limit_counts_as_disturbed() -> None:
    ratios = np.ones((10, 4))
    ratios[5, 0] = 1.25
    assert not keep_quiet(ratios, _arms(10), limit=1.25)[5]
    assert keep_quiet(ratios, _arms(10), limit=1.26)[5]


def test_exchanging_the_labels_changes_nothing() -> None:
    rng = np.random.default_rng(8)
    for trial in range(30):
        arms = _arms(40, trial)
        ratios = 1 + rng.exponential(0.01, (40, 4)) + np.where(arms == "A", 0.1, 0.0)
        assert (keep_quiet(ratios, arms) == keep_quiet(ratios, _exchange(arms))).all()


@pytest.mark.parametrize(
    ("quads", "max_drop", "kept"), [(10, 0.40, 6), (7, 0.40, 5), (100, 0.29, 71), (3, 0.0, 3)]
)
def test_never_more_than_the_allowed_share_is_dropped(quads: int, max_drop: float, kept: int) -> None:
    # Every quad has a slot over the limit; the later ones are the quieter ones.
    ratios = np.ones((quads, 4))
    ratios[:, 1] = np.linspace(3, 2, quads)
    mask = keep_quiet(ratios, _arms(quads), max_drop=max_drop)
    assert np.flatnonzero(mask).tolist() == list(range(quads - kept, quads))


def test_a_ratio_that_is_not_a_number_counts_as_disturbed() -> None:
    ratios = np.ones((10, 4))
    ratios[0, 0], ratios[1, 1], ratios[2, 2] = np.nan, np.inf, 0.0
    assert np.flatnonzero(~keep_quiet(ratios, _arms(10))).tolist() == [0, 1, 2]


def test_no_quads_give_an_empty_mask() -> None:
    assert keep_quiet(np.empty((0, 4)), np.empty((0, 4), dtype=str)).shape == (0,)


def test_the_callers_array_is_left_alone() -> None:
    ratios = np.ones((10, 4))
    ratios[0, 0] = 9.0
    before = ratios.copy()
    keep_quiet(ratios, _arms(10))
    assert (ratios == before).all()


def test_malformed_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(quads, 4\)"):
        keep_quiet(np.ones((3, 3)), _arms(3))
    with pytest.raises(ValueError, match="A or B"):
        keep_quiet(np.ones((1, 4)), np.array([list("ABCA")]))
    with pytest.raises(ValueError, match="limit"):
        keep_quiet(np.ones((1, 4)), _arms(1), limit=0.5)
    with pytest.raises(ValueError, match="max_drop"):
        keep_quiet(np.ones((1, 4)), _arms(1), max_drop=1.0)
    arms = _arms(4)
    with pytest.raises(ValueError, match="arm B has no usable ratio"):
        keep_quiet(np.where(arms == "A", 1.0, np.nan), arms)


def test_the_disturbed_share_counts_every_disturbed_quad_though_not_all_may_be_dropped() -> None:
    ratios = np.ones((10, 4))
    # Two slots of one quad count once, one exactly at the limit counts, one just below does not.
    ratios[:7, 1] = 1.5
    ratios[0, 2], ratios[7, 0], ratios[8, 0] = 1.5, 1.25, 1.24
    arms = np.array([list("ABBA")] * 10)
    assert disturbed_share(ratios, arms, limit=1.25) == 0.8
    assert np.count_nonzero(~keep_quiet(ratios, arms, limit=1.25)) == 4
    assert disturbed_share(np.ones((10, 4)), arms) == 0.0


def test_the_disturbed_share_is_what_an_unbounded_drop_would_drop_whatever_the_labels() -> None:
    rng = np.random.default_rng(10)
    for trial in range(30):
        arms = _arms(40, trial)
        ratios = 1 + rng.exponential(0.03, (40, 4)) + np.where(arms == "A", 0.1, 0.0)
        dropped = 1 - keep_quiet(ratios, arms, max_drop=0.999).mean()
        assert 0.4 < dropped < 1
        assert disturbed_share(ratios, arms) == pytest.approx(dropped)
        assert disturbed_share(ratios, _exchange(arms)) == disturbed_share(ratios, arms)


def test_disturbances_count_quads_per_arm() -> None:
    arms = np.array([list("ABBA")] * 5)
    ratios = np.ones((5, 4))
    ratios[0, 0] = ratios[0, 3] = 2.0  # both A slots of one quad: one quad
    ratios[1, 1] = ratios[2, 2] = 2.0
    assert arm_disturbances(ratios, arms) == (1, 4, 2, 3)
    assert arm_disturbances(ratios, _exchange(arms)) == (2, 3, 1, 4)


def test_a_candidate_that_sleeps_through_its_slow_calls_is_told_apart_from_noise() -> None:
    rng = np.random.default_rng(9)
    arms = _arms(60)
    noisy = 1 + (rng.random((60, 4)) < 0.1) * 0.5
    assert fisher_exact(*arm_disturbances(noisy, arms)) > 0.01
    sleeping = noisy + ((arms == "B") & (rng.random((60, 4)) < 0.2)) * 0.5
    assert fisher_exact(*arm_disturbances(sleeping, arms)) < 0.01


@pytest.mark.parametrize(
    "table",
    [
        (0, 0, 0, 0),
        (0, 5, 0, 7),
        (3, 1, 1, 3),
        (8, 2, 1, 5),
        (0, 60, 9, 51),
        (30, 30, 30, 30),
        (12, 400, 31, 377),
    ],
)
def test_fisher_exact_agrees_with_scipy(table: tuple[int, int, int, int]) -> None:
    a, b, c, d = table
    assert fisher_exact(a, b, c, d) == pytest.approx(
        reference.fisher_exact([[a, b], [c, d]]).pvalue, rel=1e-9
    )


def test_fisher_exact_refuses_negative_counts() -> None:
    with pytest.raises(ValueError, match="negative"):
        fisher_exact(-1, 2, 3, 4)


def test_the_same_wait_counts_alike_in_the_short_slots_of_a_fast_arm() -> None:
    arms = _arms(10)
    cpu = np.where(arms == "A", 6e6, 1.5e6)
    wall = cpu.copy()
    for quad, arm in ((0, "A"), (1, "B")):
        wall[quad, np.flatnonzero(arms[quad] == arm)[0]] += 0.15e6
    ratios = waiting(wall, cpu, arms)
    # 0.15 ms over the 3 ms between the two lengths.
    assert ratios[0].max() == pytest.approx(1.05)
    assert ratios[1].max() == pytest.approx(1.05)
    assert np.flatnonzero(~keep_quiet(ratios, arms)).tolist() == [0, 1]


def test_waiting_that_is_usual_for_an_arm_is_no_disturbance() -> None:
    arms = _arms(12)
    cpu = np.full((12, 4), 5e6)
    wall = cpu + np.where(arms == "B", 2e6, 0.0)
    assert waiting(wall, cpu, arms) == pytest.approx(1.0)


def test_jitter_of_a_microsecond_disturbs_no_slot_of_microseconds() -> None:
    rng = np.random.default_rng(11)
    arms = _arms(50)
    cpu = np.full((50, 4), 20e3)
    assert keep_quiet(waiting(cpu + rng.normal(0, 1e3, (50, 4)), cpu, arms), arms).all()


def test_slots_four_times_as_long_may_be_hit_four_times_as_often() -> None:
    rng = np.random.default_rng(12)
    refused_plain = refused = 0
    for trial in range(200):
        arms = _arms(150, trial)
        length = np.where(arms == "A", 6e6, 1.5e6)
        hit = rng.random((150, 4)) < -np.expm1(-length * 0.08 / 6e6)
        ratios = 1 + 0.5 * hit
        counts = arm_disturbances(ratios, arms)
        odds = length_odds(counts[0] + counts[2], 150, 6e6, 1.5e6)
        refused_plain += fisher_exact(*counts) < 0.01
        refused += fisher_exact(*counts, odds=odds) < 0.01
    assert refused_plain > 100
    assert refused <= 6


def test_a_fast_arm_that_sleeps_is_told_apart_from_noise_by_the_odds_of_its_length() -> None:
    # Equal counts would pass as even; for slots a quarter as long they are far too many.
    odds = length_odds(60, 100, 6e6, 1.5e6)
    assert fisher_exact(30, 70, 30, 70) > 0.9
    assert fisher_exact(30, 70, 30, 70, odds=odds) < 0.01


def test_equal_lengths_and_empty_or_full_counts_have_even_odds() -> None:
    assert length_odds(10, 50, 3e6, 3e6) == 1
    assert length_odds(0, 50, 6e6, 3e6) == 1
    assert length_odds(100, 50, 6e6, 3e6) == 1
    # A few hits fall as the lengths do.
    assert length_odds(1, 1000, 6e6, 3e6) == pytest.approx(2, rel=1e-3)


@pytest.mark.parametrize("odds", [0.2, 0.9999, 3.0])
def test_fisher_exact_with_odds_agrees_with_the_noncentral_distribution(odds: float) -> None:
    a, b, c, d = 9, 31, 4, 36
    law = reference.nchypergeom_fisher(a + b + c + d, a + b, a + c, odds)
    support = np.arange(0, a + c + 1)
    chances = law.pmf(support)
    wanted = chances[chances <= law.pmf(a) * (1 + 1e-7)].sum()
    assert fisher_exact(a, b, c, d, odds=odds) == pytest.approx(wanted, rel=1e-6)
