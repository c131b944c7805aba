"""From quads to a verdict, on made-up clocks."""

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import pytest

from trackside.comparison.arms import BASELINE, CANDIDATE
from trackside.comparison.checks import Ledger, Stop
from trackside.comparison.measure import Measurement, Pair, Plan, Quad
from trackside.comparison.verdict import VERDICTS, Reading, conclude, read, worst_of
from trackside.stats.intervals import Interval

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


def quad(
    order: str,
    base: float,
    cand: float,
    judge_cand: float | None = None,
    spike: float = 0.0,
    busy: float = 1.0,
    residual: float = 50_000,
) -> Quad:
    """Slot times in ns; `judge_cand` is what the candidate really takes, `spike` adds to one slot's sum."""
    ns = [base if letter == "A" else cand for letter in order]
    judge = [(base if x == "A" else (judge_cand or cand)) + residual for x in order]
    first = order.index("B")
    totals = [4 * t + (spike if i == first else 0) for i, t in enumerate(ns)]
    return Quad(order, "plain", ns, totals, judge, ns, [t / busy for t in totals], 0, 1)


def measurement(
    make: Any, pairs: int = 6, quads: int = 8, idle: dict[str, float] | None = None
) -> Measurement:
    rng = random.Random(1)
    orders = itertools.cycle(("ABBA", "BAAB"))
    result = Measurement(PLAN)
    for index in range(pairs):
        drift = math.exp(rng.gauss(0, 0.002))
        made = [make(next(orders), drift) for _ in range(quads)]
        result.pairs.append(Pair(index, made, idle=idle or {}))
    return result


def judged(make: Any, **shape: Any) -> tuple[str, list[str], Ledger, Reading]:
    ledger = Ledger()
    reading = read(measurement(make, **shape), ledger)
    verdict, reasons = conclude(reading, 0.02, ledger)
    ledger.settle()
    return verdict, reasons, ledger, reading


def test_a_real_gain_is_faster_and_its_ratio_is_baseline_over_candidate() -> None:
    verdict, _, ledger, reading = judged(lambda order, d: quad(order, 2e6 * d, 1e6))
    assert verdict == "faster"
    assert math.exp(reading.speed.mid) == pytest.approx(2, rel=0.01)
    assert ledger.results["clocks-agree"].status == "pass"


def test_a_real_loss_is_slower() -> None:
    assert judged(lambda order, d: quad(order, 1e6 * d, 1.3e6))[0] == "slower"


def test_no_difference_is_equivalent() -> None:
    assert judged(lambda order, d: quad(order, 1e6 * d, 1e6))[0] == "equivalent"


def test_a_gain_below_delta_is_equivalent_not_faster() -> None:
    assert judged(lambda order, d: quad(order, 1.008e6 * d, 1e6))[0] == "equivalent"


def test_pairs_that_disagree_are_inconclusive_with_a_reason() -> None:
    rng = random.Random(4)
    verdict, reasons, _, _ = judged(lambda order, d: quad(order, 1e6 * math.exp(rng.gauss(0, 0.4)), 1e6))
    assert verdict == "inconclusive"
    assert "interval" in reasons[0]


def test_swapped_labels_flip_the_ratio() -> None:
    _, _, _, one = judged(lambda order, d: quad(order, 2e6, 1e6))
    _, _, _, two = judged(lambda order, d: quad(order, 1e6, 2e6))
    assert one.speed.mid == pytest.approx(-two.speed.mid)


def test_a_worker_clock_that_lies_is_rejected_by_the_judge_s_clock() -> None:
    with pytest.raises(Stop) as stop:
        judged(lambda order, d: quad(order, 1e6 * d, 0.1e6, judge_cand=1e6))
    assert (stop.value.check, stop.value.outcome) == ("clocks-agree", "rejected")


def test_what_an_arm_needs_to_restore_its_state_is_no_lie() -> None:
    def make(order: str, d: float) -> Quad:
        return quad(order, 2e6 * d, 1e6, judge_cand=3e6)

    with pytest.raises(Stop):
        judged(make)
    verdict, _, ledger, reading = judged(make, idle={"baseline": 1e6, "candidate": 3e6})
    assert (verdict, ledger.results["clocks-agree"].status) == ("faster", "pass")
    assert reading.judge is not None
    assert reading.judge.mid == pytest.approx(reading.speed.mid, rel=0.01)


def test_a_baseline_s_large_state_hides_no_work_of_the_candidate() -> None:
    """Both clocks' gap is the same as without any, but the candidate had nothing to restore."""
    with pytest.raises(Stop) as stop:
        judged(
            lambda order, d: quad(order, 2e6 * d, 0.5e6, judge_cand=0.5e6),
            idle={"baseline": 2e6, "candidate": 0.1e6},
        )
    assert (stop.value.check, stop.value.outcome) == ("clocks-agree", "rejected")


def test_the_judge_s_clock_never_says_more_than_the_worker_s() -> None:
    _, _, _, reading = judged(lambda order, d: quad(order, 2e6 * d, 1e6, judge_cand=0.2e6))
    assert reading.judge is not None
    assert reading.judge == replace(reading.speed, df=reading.judge.df)


def test_a_small_lie_that_the_judge_s_clock_cannot_confirm_is_not_faster() -> None:
    verdict, reasons, ledger, _ = judged(lambda order, d: quad(order, 1.04e6 * d, 1e6, judge_cand=1.04e6))
    assert verdict == "inconclusive"
    assert "judge's clock" in reasons[0]
    assert ledger.results["clocks-agree"].status == "warn"


def test_a_pair_that_the_judge_s_clock_misses_by_more_than_a_call_takes_does_not_outweigh_the_others() -> (
    None
):
    misses = itertools.cycle([20e3, -30e3, -15e3, 10e3, -250e3, 25e3])
    found = measurement(lambda order, d: quad(order, 1e6 * d, 0.2e6))
    for pair, miss in zip(found.pairs, misses, strict=False):
        pair.quads = [quad(q.order, 1e6, 0.2e6, judge_cand=0.2e6 + miss) for q in pair.quads]
    reading = read(found, Ledger())
    assert reading.judge is not None
    assert math.exp(reading.judge.low) > 3
    assert reading.judge.high == reading.speed.high


def test_an_honest_claim_that_noise_alone_may_put_beyond_the_judge_s_clock_is_not_rejected() -> None:
    misses = itertools.cycle([1.1e6, 0.4e6, 1.0e6, 0.3e6, 0.9e6, 0.5e6])
    found = measurement(lambda order, d: quad(order, 1e6 * d, 0.5e6))
    for pair, miss in zip(found.pairs, misses, strict=False):
        pair.quads = [quad(q.order, 1e6, 0.5e6, judge_cand=0.5e6 + miss) for q in pair.quads]
    ledger = Ledger()
    reading = read(found, ledger)
    assert reading.judge is not None
    assert math.exp(reading.judge.high) - 1 < 0.5
    verdict, reasons = conclude(reading, 0.02, ledger)
    ledger.settle()
    assert verdict == "inconclusive"
    assert "noise may be why" in reasons[0]
    assert ledger.results["clocks-agree"].status == "warn"


def on_gpu(hidden_ns: float, batch: int, flushes: int = 0) -> Measurement:
    found = measurement(lambda order, d: quad(order, 200e3 * d, 150e3, judge_cand=150e3 + hidden_ns))
    found.plan = replace(PLAN, device="cuda", batch=batch, flushes=flushes)
    for pair in found.pairs:
        for one in pair.quads:
            one.mode = "cold"
    return found


def test_what_a_process_may_take_to_go_on_after_the_other_on_a_gpu_s_host_is_no_lie_and_no_proof() -> None:
    ledger = Ledger()
    verdict, reasons = conclude(read(on_gpu(70e3, batch=7), ledger), 0.02, ledger)
    ledger.settle()
    assert verdict == "inconclusive"
    assert "560 µs longer" in reasons[0]
    assert ledger.results["clocks-agree"].status == "warn"


def test_what_is_hidden_in_every_call_on_a_gpu_adds_up_to_more_than_a_slot_s_start() -> None:
    ledger = Ledger()
    with pytest.raises(Stop) as stop:
        conclude(read(on_gpu(70e3, batch=15), ledger), 0.02, ledger)
    assert (stop.value.check, stop.value.outcome) == ("clocks-agree", "rejected")


def test_what_clearing_the_cache_may_take_one_process_longer_is_no_lie_and_no_proof() -> None:
    """As measured on an H200 for torch.compile's graphs: 24 fills before each call, 2.2 µs more for each."""
    ledger = Ledger()
    verdict, reasons = conclude(read(on_gpu(70e3, batch=15, flushes=24), ledger), 0.02, ledger)
    ledger.settle()
    assert verdict == "inconclusive"
    assert "clear the cache" in reasons[0]
    with pytest.raises(Stop) as stop:
        conclude(read(on_gpu(150e3, batch=15, flushes=24), ledger), 0.02, ledger)
    assert (stop.value.check, stop.value.outcome) == ("clocks-agree", "rejected")


def test_where_the_host_s_time_is_compared_no_cache_is_cleared_and_nothing_excused_for_it() -> None:
    found = on_gpu(70e3, batch=15, flushes=24)
    found.plan = replace(found.plan, metric="wall")
    for pair in found.pairs:
        for one in pair.quads:
            one.mode = "wall"
    ledger = Ledger()
    with pytest.raises(Stop) as stop:
        conclude(read(found, ledger), 0.02, ledger)
    assert (stop.value.check, stop.value.outcome) == ("clocks-agree", "rejected")


def test_time_pushed_into_rare_slow_calls_is_refused() -> None:
    def make(order: str, d: float) -> Quad:
        return quad(order, 1e6 * d, 0.5e6, judge_cand=0.5e6, spike=40e6)

    with pytest.raises(Stop) as stop:
        judged(make)
    assert stop.value.check == "total-time-agrees"


def test_time_pushed_into_rare_slow_calls_of_one_process_in_three_is_refused() -> None:
    """They make the pairs' totals differ so much that their interval contradicts nothing."""
    found = measurement(lambda order, d: quad(order, 1e6 * d, 0.5e6))
    for pair in found.pairs[::3]:
        pair.quads[3] = quad(pair.quads[3].order, 1e6, 0.5e6, spike=500e6)
    ledger = Ledger()
    reading = read(found, ledger)
    assert reading.total.low < 0 < reading.speed.low < reading.total.high
    conclude(reading, 0.02, ledger)
    with pytest.raises(Stop) as stop:
        ledger.settle()
    assert (stop.value.check, stop.value.outcome) == ("total-time-agrees", "inconclusive")


def test_a_gain_of_which_the_judge_s_clock_sees_two_thirds_is_faster_with_a_warning() -> None:
    verdict, _, ledger, _ = judged(lambda order, d: quad(order, 2e6 * d, 1e6, judge_cand=1.2e6))
    assert verdict == "faster"
    assert ledger.results["clocks-agree"].status == "warn"


def test_quads_in_which_a_slot_was_preempted_are_dropped_whatever_they_say() -> None:
    count = itertools.count()

    def make(order: str, d: float) -> Quad:
        if next(count) % 4 == 0:
            return quad(order, 9e6, 1e6, busy=3.0)
        return quad(order, 1e6 * d, 1e6)

    verdict, _, _, reading = judged(make)
    assert verdict == "equivalent"
    assert (reading.kept, reading.quads) == (36, 48)


# -- a machine that was not quiet ----------------------------------------------------------------------


def disturbing(count: int, slots: str = "AB", base: float = 1e6) -> Any:
    """The first `count` quads made have disturbed slots, of the arms named."""
    left = itertools.count()

    def make(order: str, d: float) -> Quad:
        made = quad(order, base * d, 1e6)
        if next(left) < count:
            made.cpu = [
                t / (3.0 if letter in slots else 1.0) for letter, t in zip(order, made.totals, strict=True)
            ]
        return made

    return make


def machine_quiet(make: Any, **shape: int) -> tuple[str, str]:
    """Status and detail of the check; the reading itself never stops the run."""
    ledger = Ledger()
    read(measurement(make, **shape), ledger)
    result = ledger.results["machine-quiet"]
    if result.status == "fail":
        with pytest.raises(Stop) as stop:
            ledger.settle()
        assert (stop.value.check, stop.value.outcome) == ("machine-quiet", "inconclusive")
    else:
        ledger.settle()
    return result.status, result.detail


def test_where_more_than_40_percent_of_quads_are_disturbed_none_is_dropped() -> None:
    status, detail = machine_quiet(disturbing(20))
    assert (status, detail.endswith("more than the 40% that may be dropped: all of them count")) == (
        "warn",
        True,
    )
    assert "42% of quads were disturbed" in detail
    assert read(measurement(disturbing(20)), Ledger()).kept == 48
    assert read(measurement(disturbing(19)), Ledger()).kept == 29
    assert machine_quiet(disturbing(19)) == (
        "pass",
        "40% of quads dropped as disturbed",
    )


def test_disturbance_that_falls_on_the_baseline_is_inconclusive() -> None:
    status, detail = machine_quiet(disturbing(8, "A"))
    assert status == "fail"
    assert "unevenly, on the baseline" in detail
    assert "17% of quads" in detail


def test_beside_a_disturbed_baseline_a_slower_candidate_is_slower_all_the_same() -> None:
    status, detail = machine_quiet(disturbing(8, "A", base=0.5e6))
    assert (status, detail.endswith("all of them count")) == ("warn", True)


def test_a_candidate_that_waits_where_it_is_slow_has_no_quad_dropped() -> None:
    """In 19 of 48 quads it takes three times as long and sleeps; dropped, it would be level in all."""

    def waiting() -> Any:
        disturbed = disturbing(19, "B")

        def make(order: str, drift: float) -> Quad:
            made = disturbed(order, drift)
            if made.cpu != made.totals:
                made.ns = [t * (3.0 if arm == "B" else 1.0) for arm, t in zip(order, made.ns, strict=True)]
            return made

        return make

    status, detail = machine_quiet(waiting())
    assert (status, "unevenly, on the candidate" in detail) == ("warn", True)
    found = read(measurement(waiting()), Ledger())
    assert found.kept == 48
    assert found.speed.mid < -0.2


@pytest.mark.parametrize("arm", ["A", "B"])
def test_disturbance_that_chance_could_have_put_on_one_arm_passes(arm: str) -> None:
    # 6 of 48 against none: Fisher p = 0.027.
    assert machine_quiet(disturbing(6, arm))[0] == "pass"


def test_a_baseline_of_eight_times_the_length_may_be_hit_that_much_more_often() -> None:
    assert machine_quiet(disturbing(8, "A", base=8e6))[0] == "pass"
    assert machine_quiet(disturbing(8, "B", base=8e6))[0] == "warn"


@pytest.mark.parametrize(("arm", "status"), [("A", "fail"), ("B", "warn")])
def test_few_disturbed_quads_pass_however_they_fall(arm: str, status: str) -> None:
    # 9 of 96 against none: Fisher p = 0.003, and 9 %. One more than a tenth is too many.
    assert machine_quiet(disturbing(9, arm), quads=16)[0] == "pass"
    assert machine_quiet(disturbing(10, arm), quads=16)[0] == status


@pytest.mark.parametrize(("hits", "status"), [(16, "pass"), (60, "warn")])
def test_short_slots_may_be_hit_more_often_than_their_length_explains_in_a_tenth_of_the_quads(
    hits: int, status: str
) -> None:
    """Of 574 quads 129 had a disturbed slot of 12 ms, and 16 one of 0.5 ms: honest code, 22 times as fast."""
    count = itertools.count()

    def make(order: str, drift: float) -> Quad:
        made, n = quad(order, 12.1e6, 0.54e6), next(count)
        for arm, most in (("A", 129), ("B", hits)):
            if n < most:
                made.cpu[order.index(arm)] -= 2e6
        return made

    assert machine_quiet(make, pairs=14, quads=41)[0] == status


def test_a_quiet_machine_passes() -> None:
    assert machine_quiet(disturbing(0)) == ("pass", "0% of quads dropped as disturbed")


def test_a_gpu_s_quads_are_not_judged_by_the_host_s_preemption() -> None:
    made = measurement(disturbing(20, "B"))
    made.plan = replace(PLAN, device="cuda:0")
    for q in (q for pair in made.pairs for q in pair.quads):
        q.mode = "cold"
    ledger = Ledger()
    assert read(made, ledger).kept == 48
    assert "machine-quiet" not in ledger.results


def test_an_even_delay_in_one_slot_position_cancels() -> None:
    def make(order: str, d: float) -> Quad:
        made = quad(order, 1e6, 1e6)
        made.ns[0] *= 1.2
        return made

    assert judged(make)[3].speed.mid == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("verdicts", "wanted"),
    [
        (["faster", "rejected", "slower"], "rejected"),
        (["faster", "slower"], "slower"),
        (["faster", "equivalent"], "equivalent"),
        (["faster", "inconclusive"], "inconclusive"),
        (["not-comparable", "slower"], "not-comparable"),
        (["faster", "faster"], "faster"),
    ],
)
def test_several_shapes_take_the_least_favourable_verdict(verdicts: list[str], wanted: str) -> None:
    assert worst_of(verdicts) == wanted
    assert worst_of(verdicts[::-1]) == wanted


def test_faster_needs_every_clock() -> None:
    """No reading whose judge or totals show no gain may come out as faster."""

    def interval(mid: float) -> Interval:
        return Interval(mid=mid, low=mid - 0.01, high=mid + 0.01, confidence=0.95, n=6, df=4)

    for speed, judge, total in itertools.product((-0.3, 0.0, 0.3), repeat=3):
        reading = Reading(interval(speed), interval(judge), interval(total), total, None, None, 1.0, 48, 48)
        ledger = Ledger()
        try:
            verdict, _ = conclude(reading, 0.02, ledger)
            ledger.settle()
        except Stop as stop:
            verdict = stop.outcome
        assert verdict in VERDICTS
        assert (verdict == "faster") == (speed > 0 and judge > 0 and total > 0)


def test_a_pair_of_which_other_work_left_few_quads_counts_for_less() -> None:
    """One pair says 1.3x with two quiet quads of ten; alike, the six would say 1.045x."""
    found = measurement(lambda order, drift: quad(order, 1e6 * drift, 1e6 * drift), quads=10)
    odd = found.pairs[2]
    odd.quads = [quad(q.order, 1.3e6, 1e6, busy=1.0 if i < 2 else 1.5) for i, q in enumerate(odd.quads)]
    reading = read(found, Ledger())
    assert reading.kept == 52
    assert math.exp(reading.speed.mid) < 1.02
    # What the pair took is not forgotten: the sum of all times weighs it as every other.
    assert math.exp(reading.total.mid) == pytest.approx(1.3 ** (1 / 6), rel=0.01)


def test_a_clock_that_also_copied_views_over_much_memory_is_no_proof_of_a_lie() -> None:
    made = measurement(lambda order, drift: quad(order, 2e6 * drift, 1e6, judge_cand=1.9e6))
    made.output_bytes = {BASELINE: 1 << 20, CANDIDATE: 1 << 20}
    with pytest.raises(Stop, match="the judge's clock, which no candidate can reach"):
        conclude(read(made, Ledger()), 0.02, Ledger())
    made.output_bytes = {BASELINE: 1 << 20, CANDIDATE: 1 << 24}
    verdict, reasons = conclude(read(made, Ledger()), 0.02, Ledger())
    assert verdict == "inconclusive"
    assert "over 16,777,216 bytes, the baseline's take 1,048,576: return contiguous copies" in reasons[0]


def test_a_clock_that_also_saw_hosts_that_waited_is_no_proof_of_a_lie() -> None:
    made = measurement(lambda order, drift: quad(order, 2e6 * drift, 1e6, judge_cand=1.9e6))
    made.plan = replace(made.plan, paced=True)
    verdict, reasons = conclude(read(made, Ledger()), 0.02, Ledger())
    assert verdict == "inconclusive"
    assert "calls wait for the device" in reasons[0]
