"""Dropping disturbed quads without looking at who gains."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats as reference

from trackside.stats.quiet import arm_disturbances, disturbed_share, fisher_exact, keep_quiet


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
