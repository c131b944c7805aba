"""The plan of the timed part: who starts first, and how many quads a spread calls for."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from trackside.comparison.arms import BASELINE, CANDIDATE
from trackside.comparison.measure import (
    _MAX_QUADS,
    _MIN_QUADS,
    HostTime,
    Measurement,
    Pair,
    Plan,
    Quad,
    _is_over,
    _pairs_in_time,
    _quads_per_pair,
    _start_orders,
    odd_freezes,
    plan_batch,
    plan_flushes,
    used_beside,
)

PLAN = Plan(
    device="cpu",
    pairs=6,
    batch=4,
    flushes=0,
    delta=0.02,
    metric="device",
    seconds=10,
    host_bound=False,
    paced=False,
)
LEAST = _MIN_QUADS["cpu"]


def quad(order: str, noise: float, mode: str = "plain") -> Quad:
    """A quad in which the baseline takes e^noise times as long."""
    ns = [1e6 * (2.718281828459045**noise if letter == "A" else 1) for letter in order]
    return Quad(order, mode, ns, ns, ns, ns, [1.0] * 4, 0, 1)


def pairs_of(spread: float, pairs: int = 2, quads: int = 200, seed: int = 1) -> list[Pair]:
    rng = random.Random(seed)
    return [
        Pair(i, [quad(rng.choice(("ABBA", "BAAB")), rng.gauss(0, spread)) for _ in range(quads)])
        for i in range(pairs)
    ]


# -- who starts first ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [1, 2, 3, 6, 8])
def test_each_arm_starts_first_in_half_of_the_pairs(pairs: int) -> None:
    for seed in range(20):
        orders = _start_orders(pairs, random.Random(seed))
        assert all(sorted(order) == [BASELINE, CANDIDATE] for order in orders)
        firsts = Counter(first for first, _ in orders)
        assert len(orders) == pairs
        assert abs(firsts[BASELINE] - firsts[CANDIDATE]) == pairs % 2


def test_who_starts_first_cannot_be_told_from_the_pair_s_number() -> None:
    drawn = [_start_orders(6, random.Random(seed)) for seed in range(200)]
    # All 20 ways to give three of six places to one arm.
    assert len({tuple(orders) for orders in drawn}) == 20
    for index in range(6):
        assert 60 < sum(orders[index][0] == BASELINE for orders in drawn) < 140


# -- how many quads ------------------------------------------------------------------------------------


def test_more_spread_asks_for_more_quads_between_the_least_and_the_most() -> None:
    wanted = [_quads_per_pair(pairs_of(spread), PLAN) for spread in (0.001, 0.05, 0.06, 0.07, 1.0)]
    assert wanted == sorted(wanted)
    assert wanted[0] == LEAST < wanted[1] < wanted[2] < wanted[3] < wanted[4] == _MAX_QUADS


def test_a_smaller_delta_and_fewer_pairs_ask_for_more_quads() -> None:
    noisy = pairs_of(0.06)
    here = _quads_per_pair(noisy, PLAN)
    assert _quads_per_pair(noisy, replace(PLAN, delta=0.015)) > here
    assert _quads_per_pair(noisy, replace(PLAN, pairs=5)) > here


def test_too_few_quads_for_an_idea_of_the_spread_ask_for_the_least() -> None:
    assert _quads_per_pair(pairs_of(1.0, pairs=1, quads=LEAST - 1), PLAN) == LEAST
    assert _quads_per_pair(pairs_of(1.0, pairs=1, quads=LEAST), PLAN) == _MAX_QUADS
    assert _quads_per_pair([Pair(0)], PLAN) == LEAST


def test_swapped_labels_ask_for_as_many_quads() -> None:
    swap = {"ABBA": "BAAB", "BAAB": "ABBA"}
    for seed in range(20):
        made = pairs_of(0.06, seed=seed)
        swapped = [Pair(p.index, [replace(q, order=swap[q.order]) for q in p.quads]) for p in made]
        assert _quads_per_pair(swapped, PLAN) == _quads_per_pair(made, PLAN)
        assert LEAST < _quads_per_pair(made, PLAN) < _MAX_QUADS


def test_a_gain_and_differences_between_pairs_do_not_ask_for_more_quads() -> None:
    made = pairs_of(0.06)
    factors = {0: 3.0, 1: 0.5}
    moved = [
        Pair(
            p.index,
            [
                replace(
                    q,
                    ns=[
                        t * (factors[p.index] if letter == "A" else 1)
                        for t, letter in zip(q.ns, q.order, strict=True)
                    ],
                )
                for q in p.quads
            ],
        )
        for p in made
    ]
    assert LEAST < _quads_per_pair(moved, PLAN) == _quads_per_pair(made, PLAN) < _MAX_QUADS


def test_only_quads_of_the_metric_s_own_clock_count() -> None:
    rng = random.Random(2)
    gpu = replace(PLAN, device="cuda:0", pairs=8)
    quads = [quad("ABBA", rng.gauss(0, 0.05), "cold") for _ in range(30)]
    noise = [quad("ABBA", rng.gauss(0, 1.0), "wall") for _ in range(30)]
    here = _quads_per_pair([Pair(0, quads)], gpu)
    assert _MIN_QUADS["cuda"] < here < _MAX_QUADS
    assert _quads_per_pair([Pair(0, quads + noise)], gpu) == here
    assert _quads_per_pair([Pair(0, quads + noise)], replace(gpu, metric="wall")) == _MAX_QUADS


MS = 1_000_000


@pytest.mark.parametrize(
    ("ran", "odd"),
    [
        pytest.param([0] * 100, 0, id="not at all"),
        pytest.param([10_000] * 100, 0, id="moments"),
        pytest.param([0] * 100 + [20 * MS] * 2, 2, id="two long ones"),
        pytest.param([0] * 100 + [20 * MS] * 3, 3, id="three long ones"),
        pytest.param([100_000] * 100, 60, id="a little each time"),
        pytest.param([8 * MS] * 8, 8, id="all the time"),
    ],
)
def test_freezes_with_more_than_stopping_takes_are_counted(ran: list[int], odd: int) -> None:
    assert odd_freezes(ran) == odd


def test_helpers_are_charged_together_with_those_that_are_new_or_have_ended() -> None:
    assert used_beside({1: 5, 2: 5}, {1: 9, 3: 2}, ended=7) == 4 + 2 + 7
    assert used_beside({1: 5}, {1: 5}, ended=-3) == 0, "another pair of workers has fewer children behind it"


def test_a_slot_holds_as_many_calls_of_the_baseline_as_fit_unless_the_candidate_is_far_slower() -> None:
    assert plan_batch(1e6, 0.1e6, 1 << 20, "cpu", 0, None) == 10
    assert plan_batch(1e6, 1.9e6, 1 << 20, "cpu", 0, None) == 10
    assert plan_batch(1e6, 12e6, 1 << 20, "cpu", 0, None) == 1
    assert plan_batch(1e6, 1e6, 64 << 20, "cpu", 0, None) == 3


def test_a_slot_on_a_gpu_holds_sixteen_calls_unless_that_takes_too_long() -> None:
    """They share what the judge's clock cannot see through: how long a process takes to go on."""
    assert plan_batch(0.2e6, 0.2e6, 1 << 20, "cuda", 1, None) == 57
    assert plan_batch(0.2e6, 0.2e6, 1 << 20, "cuda", 20, None) == 16
    assert plan_batch(2.4e6, 2.4e6, 1 << 20, "cuda", 10, None) == 10
    assert plan_batch(40e6, 40e6, 1 << 20, "cuda", 1, None) == 1


@pytest.mark.parametrize(
    ("index", "seconds", "timing", "counted", "over"),
    [
        (0, 1.0, 1.0, 5, False),
        (0, 1.0, 1.0, 40, True),
        (0, 10.0, 9.0, 5, False),
        (0, 10.0, 1.0, 6, True),
        (0, 15.0, 5.0, 1, True),
        (0, 15.0, 4.9, 5, False),
        (1, 19.9, 9.0, 39, False),
        (1, 20.0, 9.0, 6, True),
        (1, 29.9, 19.0, 5, False),
        (1, 30.0, 19.0, 1, True),
    ],
)
def test_a_pair_that_is_late_gives_up_quads_and_leaves_the_next_ones_their_time(
    index: int, seconds: float, timing: float, counted: int, over: bool
) -> None:
    assert _is_over(replace(PLAN, seconds=60.0), index, seconds, timing, counted, wanted=40) is over


def test_there_are_fewer_pairs_where_one_takes_longer_than_its_share_and_never_fewer_than_six() -> None:
    plan = replace(PLAN, pairs=12, seconds=48.0)
    assert [_pairs_in_time(plan, seconds) for seconds in (1.0, 4.0, 6.0, 7.9, 30.0)] == [12, 12, 8, 6, 6]
    assert _pairs_in_time(replace(plan, pairs=2), 30.0) == 2


@pytest.mark.parametrize("pairs", [6, 7, 12])
def test_when_the_first_pair_is_over_the_others_still_start_in_balance(pairs: int) -> None:
    for first in ((BASELINE, CANDIDATE), (CANDIDATE, BASELINE)):
        orders = [first, *_start_orders(pairs, random.Random(3), begun=first)]
        assert len(orders) == pairs
        assert 0 <= 2 * orders.count(first) - pairs <= 1


# -- flushes -------------------------------------------------------------------------------------------


def host_times(*arms: tuple[float, float], waits: tuple[int, ...] = ()) -> list[HostTime]:
    return [HostTime(enqueue, run, i in waits) for i, (enqueue, run) in enumerate(arms)]


def test_launches_of_a_candidate_far_faster_than_the_baseline_are_hidden_too() -> None:
    enqueue, slow, fast = 300e3, 1.4e6, 70e3
    assert plan_flushes(host_times((enqueue, slow), (enqueue, slow))) == (1, False)
    flushes, host_bound = plan_flushes(host_times((enqueue, slow), (enqueue, fast)))
    assert flushes * 80e3 > enqueue - fast
    assert not host_bound
    assert plan_flushes(host_times((enqueue, fast), (enqueue, slow))) == (flushes, False)


@pytest.mark.parametrize("run", [70e3, 290e3, 500e3])
def test_launches_stay_hidden_when_the_host_takes_twice_as_long_as_while_planning(run: float) -> None:
    enqueue = 300e3
    flushes, host_bound = plan_flushes(host_times((enqueue, run), (enqueue, run)))
    assert flushes * 80e3 + run > 2 * enqueue
    assert not host_bound


def test_what_no_number_of_flushes_hides_is_called_host_bound() -> None:
    assert plan_flushes(host_times((5e6, 70e3), (300e3, 70e3))) == (24, True)


@pytest.mark.parametrize("waiting", [0, 1], ids=["the baseline waits", "the candidate waits"])
def test_where_one_arm_waits_calls_hide_nothing_behind_each_other(waiting: int) -> None:
    arms = [(450e3, 1e6), (450e3, 1e6)]
    assert plan_flushes(host_times(*arms)) == (1, False)
    # Waiting is in the one's time, with its run; what the other enqueues must still be hidden.
    arms[waiting] = (50e3 + 1e6, 1e6)
    flushes, _ = plan_flushes(host_times(*arms, waits=(waiting,)))
    assert flushes * 80e3 > 450e3


@pytest.mark.parametrize(
    ("exposed", "paced", "host_bound"), [(11, False, True), (9, False, False), (11, True, False)]
)
def test_launches_that_show_in_one_call_of_ten_make_an_arm_host_bound(
    exposed: int, paced: bool, host_bound: bool
) -> None:
    plan = replace(PLAN, device="cuda", paced=paced)
    waited = {"baseline": [1] * exposed + [0] * (100 - exposed), "candidate": [0] * 100}
    assert Measurement(plan, waited=waited).host_bound is host_bound
