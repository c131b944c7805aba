"""The whole chain on simulated comparisons whose truth is known; every seed is fixed.

Bounds are far enough from the expected rates (at least three standard errors) that only a changed method,
not another seed, moves a result across them.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from trackside.stats.intervals import Interval, RunningSignSequence, balanced_interval, t_interval
from trackside.stats.quads import Order, pair_median, quad_log_ratio
from trackside.stats.spread import median
from trackside.stats.totals import contradicts, total_ratio
from trackside.stats.verdict import classify

PAIRS = 6
QUADS = 40

Floats = npt.NDArray[np.float64]


def _log_ratios(rng: np.random.Generator, between: float, within: float) -> Floats:
    """A/A comparisons as (PAIRS, QUADS) log ratios: each pair of processes has a bias of its own."""
    return rng.normal(0, between, (PAIRS, 1)) + rng.normal(0, within, (PAIRS, QUADS))


def _false_rate(
    analyse: Callable[[Floats], tuple[float, float]], comparisons: int, between: float, seed: int
) -> float:
    rng = np.random.default_rng(seed)
    false = 0
    for _ in range(comparisons):
        low, high = analyse(_log_ratios(rng, between, within=0.03))
        false += low > 0 or high < 0
    return false / comparisons


def _over_pairs(d: Floats) -> tuple[float, float]:
    found = t_interval([median(row) for row in d])
    return found.low, found.high


def _pooled(d: Floats) -> tuple[float, float]:
    found = t_interval(d.ravel().tolist())
    return found.low, found.high


def _sequence(d: Floats) -> tuple[float, float]:
    running = RunningSignSequence()
    low, high = -math.inf, math.inf
    for value in d.ravel().tolist():
        low, high = running.add(value)
        if low > 0 or high < 0:
            break
    return low, high


@pytest.mark.parametrize("between", [0.0, 0.01, 0.03])
def test_t_over_pair_medians_keeps_the_nominal_rate_whatever_the_spread_between_processes(
    between: float,
) -> None:
    assert 0.035 < _false_rate(_over_pairs, 3000, between, seed=11) < 0.065


def test_pooling_the_quads_holds_only_while_processes_are_alike() -> None:
    assert 0.025 < _false_rate(_pooled, 1000, 0.0, seed=12) < 0.075
    assert _false_rate(_pooled, 500, 0.01, seed=12) > 0.25


def test_the_sequence_withstands_a_look_after_every_quad_but_not_a_spread_between_processes() -> None:
    assert _false_rate(_sequence, 400, 0.0, seed=13) < 0.06
    assert _false_rate(_sequence, 200, 0.01, seed=13) > 0.10


@pytest.mark.parametrize("between", [0.0, 0.01, 0.03])
def test_identical_programs_are_told_apart_in_one_of_a_hundred_comparisons_at_most(between: float) -> None:
    rng = np.random.default_rng(19)
    found = [t_interval([median(row) for row in _log_ratios(rng, between, 0.03)]) for _ in range(3000)]
    assert sum(classify(i, 0.02) in ("faster", "slower") for i in found) / len(found) < 0.015


_GROUPS = ["first", "second"] * (PAIRS // 2)


@pytest.mark.parametrize("effect", [0.0, 0.02])
def test_an_interval_that_knows_who_started_first_keeps_the_nominal_rate(effect: float) -> None:
    rng = np.random.default_rng(20)
    false = 0
    for _ in range(3000):
        shift = np.array([effect if group == "first" else -effect for group in _GROUPS])
        found = balanced_interval((shift + rng.normal(0, 0.01, PAIRS)).tolist(), _GROUPS)
        false += found.low > 0 or found.high < 0
    assert 0.035 < false / 3000 < 0.065


def test_what_starting_first_is_worth_does_not_widen_the_interval() -> None:
    rng = np.random.default_rng(21)
    values = rng.normal(0, 0.001, PAIRS) + np.array([0.01 if g == "first" else -0.01 for g in _GROUPS])
    plain, balanced = t_interval(values.tolist()), balanced_interval(values.tolist(), _GROUPS)
    assert balanced.mid == pytest.approx(plain.mid)
    assert balanced.high - balanced.low < (plain.high - plain.low) / 4


def test_a_real_gain_of_twice_delta_is_found() -> None:
    rng = np.random.default_rng(14)
    gain = math.log(1.04)
    verdicts = [
        classify(t_interval([median(row) for row in gain + _log_ratios(rng, 0.005, 0.03)]), 0.02)
        for _ in range(500)
    ]
    assert verdicts.count("faster") > 450
    assert verdicts.count("slower") == verdicts.count("equivalent") == 0


def _timed_pair(
    rng: np.random.Generator, gain: float, first_slot: float, noise: float, drift: float = 0.0
) -> tuple[list[float], list[Order]]:
    """One worker pair from slot times up: coin, a delay of every quad's first slot, drift, noise."""
    clock = 0.0
    ratios: list[float] = []
    orders: list[Order] = []
    for _ in range(QUADS):
        order: Order = "ABBA" if rng.random() < 0.5 else "BAAB"
        times = []
        for slot, arm in enumerate(order):
            work = math.exp((0.0 if arm == "A" else -gain) + drift * clock + rng.normal(0, noise))
            times.append(work * (1 + first_slot) if slot == 0 else work)
            clock += 1
        ratios.append(quad_log_ratio(times, order))
        orders.append(order)
    return ratios, orders


@pytest.mark.parametrize("drift", [0.0, 0.01, -0.01])
def test_a_linear_drift_leaves_every_noiseless_quad_exactly_right(drift: float) -> None:
    ratios, _ = _timed_pair(np.random.default_rng(15), gain=0.05, first_slot=0.0, noise=0.0, drift=drift)
    assert ratios == pytest.approx([0.05] * QUADS, abs=1e-14)


def _first_slot_intervals(fixed_order: bool, estimate: str, comparisons: int = 150) -> list[Interval]:
    rng = np.random.default_rng(16)
    found = []
    for _ in range(comparisons):
        centres = []
        for _ in range(PAIRS):
            ratios, orders = _timed_pair(rng, gain=0.0, first_slot=0.10, noise=0.01)
            if fixed_order:
                # What always running ABBA would have recorded: the baseline pays for the delay each time.
                ratios = [d if order == "ABBA" else -d for d, order in zip(ratios, orders, strict=True)]
            centres.append(median(ratios) if estimate == "plain" else pair_median(ratios, orders))
        found.append(t_interval(centres))
    return found


def test_a_delay_of_the_first_slot_stays_centred_because_of_the_coin() -> None:
    found = _first_slot_intervals(fixed_order=False, estimate="plain")
    assert np.mean([i.mid for i in found]) == pytest.approx(0, abs=0.005)
    wrong = sum(classify(i, 0.02) in ("faster", "slower") for i in found)
    assert wrong / len(found) < 0.11


def test_without_the_coin_the_same_delay_is_a_false_gain_every_time() -> None:
    found = _first_slot_intervals(fixed_order=True, estimate="plain", comparisons=30)
    assert all(classify(i, 0.02) == "faster" for i in found)


def test_pair_median_proves_equivalence_under_a_first_slot_delay_where_the_plain_median_cannot() -> None:
    plain = _first_slot_intervals(fixed_order=False, estimate="plain", comparisons=60)
    freed = _first_slot_intervals(fixed_order=False, estimate="pair_median", comparisons=60)
    assert sum(classify(i, 0.02) == "equivalent" for i in plain) < 10
    assert all(classify(i, 0.02) == "equivalent" for i in freed)


def test_swapping_the_labels_flips_the_final_interval_exactly() -> None:
    rng = np.random.default_rng(17)
    swap: dict[Order, Order] = {"ABBA": "BAAB", "BAAB": "ABBA"}
    there, back = [], []
    for _ in range(PAIRS):
        quads = [(rng.lognormal(0, 0.1, 4).tolist(), order) for order in swap for _ in range(7)]
        orders = [order for _, order in quads]
        there.append(pair_median([quad_log_ratio(times, order) for times, order in quads], orders))
        swapped = [swap[order] for order in orders]
        back.append(
            pair_median(
                [quad_log_ratio(t, order) for (t, _), order in zip(quads, swapped, strict=True)], swapped
            )
        )
    one, other = t_interval(there), t_interval(back)
    assert (one.mid, one.low, one.high) == (-other.mid, -other.high, -other.low)


def _intervals_of_calls(rng: np.random.Generator, candidate: Floats) -> tuple[Interval, Interval]:
    """Median and total intervals of a candidate's (PAIRS, calls) times against a baseline of 1 per call."""
    calls = candidate.shape[1]
    base = np.exp(rng.normal(0, 0.05, (PAIRS, calls)))
    cand = candidate * np.exp(rng.normal(0, 0.05, (PAIRS, calls)))
    d = np.log(base / cand)
    medians = t_interval([median((row[::2] + row[1::2]) / 2) for row in d])
    totals = t_interval(
        [math.log(total_ratio(b.tolist(), c.tolist())) for b, c in zip(base, cand, strict=True)]
    )
    return medians, totals


@pytest.mark.parametrize("period", [10, 40])
def test_work_postponed_into_rare_calls_is_refused_although_the_medians_say_faster(period: int) -> None:
    rng = np.random.default_rng(18)
    refused = 0
    for _ in range(200):
        turn = (np.arange(120) + rng.integers(0, period, (PAIRS, 1))) % period
        lazy = np.where(turn == 0, period - 0.05 * (period - 1), 0.05)  # the same work in total
        medians, totals = _intervals_of_calls(rng, lazy)
        assert classify(medians, 0.02) == "faster"
        refused += contradicts(medians, totals)
    assert refused > 185


def test_an_honest_gain_is_not_refused() -> None:
    rng = np.random.default_rng(19)
    refused = 0
    for _ in range(200):
        medians, totals = _intervals_of_calls(rng, np.full((PAIRS, 120), math.exp(-0.05)))
        assert classify(medians, 0.02) == "faster"
        refused += contradicts(medians, totals)
    assert refused == 0
