"""How much error is allowed: the baseline's own, in bins of magnitude, with a floor in ulps."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trackside.comparison import accuracy, tolerance
from trackside.comparison.baseline import learn
from trackside.comparison.study import Study

EPS = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}


def bins(found: torch.Tensor, oracle: torch.Tensor) -> tolerance.Bins:
    result: tolerance.Bins = accuracy.measure(found, oracle)["bins"]
    return result


def within(candidate: torch.Tensor, baseline: torch.Tensor, oracle: torch.Tensor, **declared: float) -> bool:
    dtype = str(baseline.dtype).removeprefix("torch.")
    allowances = tolerance.allow(bins(baseline, oracle), dtype, declared or None)
    return tolerance.exceeds(bins(candidate, oracle), allowances) is None


@pytest.fixture
def oracle() -> torch.Tensor:
    g = torch.Generator().manual_seed(3)
    return torch.randn(20_000, generator=g, dtype=torch.float64)


def noisy(oracle: torch.Tensor, epsilons: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    g = torch.Generator().manual_seed(5)
    noise = torch.randn(oracle.shape, generator=g, dtype=torch.float64)
    return (oracle * (1 + epsilons * EPS[str(dtype).removeprefix("torch.")] * noise)).to(dtype)


def test_the_baseline_itself_is_within(oracle: torch.Tensor) -> None:
    baseline = noisy(oracle, 2)
    assert within(baseline, baseline, oracle)


def test_a_reordered_sum_with_eight_times_the_error_is_within(oracle: torch.Tensor) -> None:
    assert within(noisy(oracle, 16), noisy(oracle, 2), oracle)


def test_a_narrower_type_inside_is_beyond(oracle: torch.Tensor) -> None:
    baseline = noisy(oracle, 2)
    for narrow in (torch.float16, torch.bfloat16):
        assert not within(oracle.to(narrow).float(), baseline, oracle)


def test_tf32_inside_is_beyond(oracle: torch.Tensor) -> None:
    cut = (oracle.float().view(torch.int32) & ~0x1FFF).view(torch.float32)
    assert not within(cut, noisy(oracle, 2), oracle)


def test_int8_for_bfloat16_is_beyond(oracle: torch.Tensor) -> None:
    scale = oracle.abs().max() / 127
    quantised = ((oracle / scale).round() * scale).to(torch.bfloat16)
    assert not within(quantised, oracle.to(torch.bfloat16), oracle)


def test_small_values_set_to_zero_are_beyond_however_few_they_are() -> None:
    g = torch.Generator().manual_seed(1)
    oracle = torch.exp(4 * torch.randn(20_000, generator=g, dtype=torch.float64))
    baseline = noisy(oracle, 1)
    zeroed = torch.where(oracle < 1e-2, 0.0, baseline.double()).float()
    assert not within(zeroed, baseline, oracle)


def test_small_values_that_make_up_a_part_of_their_own_get_no_step_of_the_large_ones() -> None:
    g = torch.Generator().manual_seed(1)
    oracle = torch.rand(50_000, generator=g, dtype=torch.float64) + 1
    oracle[::50] *= 1e-7
    known = bins(oracle.float(), oracle)
    zeroed = bins(torch.where(oracle < 1e-3, 0.0, oracle).float(), oracle)
    assert tolerance.exceeds(zeroed, tolerance.allow(known, "float32")) is None
    assert tolerance.exceeds(zeroed, tolerance.allow(known, "float32", small_parts=True)) is not None
    assert tolerance.exceeds(known, tolerance.allow(known, "float32", small_parts=True)) is None
    below = tolerance.may_be_anything_below(known, "float32")
    assert 1e-6 < below < 1e-4
    assert tolerance.may_be_anything_below(bins((oracle + 1).float(), oracle + 1), "float32") == 0


@pytest.mark.parametrize("wrong", [1e-3, math.pi, 1e30])
def test_one_wrong_element_among_many_is_beyond(oracle: torch.Tensor, wrong: float) -> None:
    baseline = noisy(oracle, 2)
    candidate = baseline.clone()
    candidate[12_345] += wrong
    assert not within(candidate, baseline, oracle)


def test_an_exact_baseline_leaves_a_floor_of_a_few_ulps(oracle: torch.Tensor) -> None:
    exact = oracle.float()
    assert within(noisy(exact.double(), 4), exact, exact.double())
    assert not within(noisy(exact.double(), 300), exact, exact.double())


def test_exact_zeros_may_miss_by_an_ulp_of_the_leaf_but_not_by_a_value() -> None:
    oracle = torch.cat([torch.zeros(1000, dtype=torch.float64), torch.ones(1000, dtype=torch.float64)])
    baseline = oracle.float()
    tiny, large = baseline.clone(), baseline.clone()
    tiny[0] += EPS["float32"] / 2
    large[0] = 1e-3
    assert within(tiny, baseline, oracle)
    assert not within(large, baseline, oracle)


def test_a_few_subnormals_may_be_flushed_but_not_a_task_made_of_them() -> None:
    small = torch.full((1000,), 1e-40, dtype=torch.float64)
    few = torch.cat([torch.ones(100_000, dtype=torch.float64), small])
    assert within(torch.where(few < 1e-38, 0.0, few).float(), few.float(), few)
    assert not within(torch.zeros(1000), small.float(), small)


def test_a_declared_tolerance_replaces_the_baseline_s_error(oracle: torch.Tensor) -> None:
    baseline = noisy(oracle, 2)
    coarse = oracle.to(torch.bfloat16).float()
    assert within(coarse, baseline, oracle, rms=0.01, max=0.1)
    assert not within(coarse, baseline, oracle, rms=1e-6, max=1e-5)


def test_the_worst_bin_is_named_with_its_factor() -> None:
    limits = {"270": tolerance.Allowance(1e-6, 1e-5), "271": tolerance.Allowance(1e-6, 1e-5)}
    found = {"270": [100.0, 0.0, 2e-5, 1.0], "271": [100.0, 0.0, 9e-5, 1.0]}
    worst = tolerance.exceeds(found, limits)
    assert worst is not None
    assert worst[0] == "271"
    assert worst[1] == pytest.approx(9)


def test_merging_adds_counts_and_keeps_the_largest_error() -> None:
    into: tolerance.Bins = {"270": [2.0, math.sqrt(1 / 2), 0.5, math.sqrt(4 / 2)]}
    more = {"270": [3.0, math.sqrt(2 / 3), 0.25, math.sqrt(1 / 3)], "280": [1.0, 0.0, 0.0, 3.0]}
    tolerance.merge(into, more)
    assert into.keys() == {"270", "280"}
    assert into["270"] == pytest.approx([5.0, math.sqrt(3 / 5), 0.5, math.sqrt(5 / 5)])
    assert into["280"] == [1.0, 0.0, 0.0, 3.0]


def test_relative_error_of_nothing_is_zero() -> None:
    assert tolerance.relative_error({}) == {"rms": 0.0, "max": 0.0}


def test_elements_beyond_are_as_many_as_make_up_the_sum_of_squares() -> None:
    allowances = {name: tolerance.Allowance(1.0, 4.0) for name in "123"}
    one_of_thousand = [1000.0, math.sqrt((5.0**2 + 0.1) / 1000), 5.0, 1.0]
    in_the_mean = [30.0, 2.0, 5.0, 1.0]
    within_both = [970.0, math.sqrt(1 / 970), 1.0, 1.0]
    bins = {"1": one_of_thousand, "2": in_the_mean, "3": within_both}
    assert 1 <= tolerance.elements_beyond({"1": one_of_thousand}, allowances) < 2
    assert 31 <= tolerance.elements_beyond(bins, allowances) < 32
    assert tolerance.elements_beyond({"3": within_both}, allowances) == 0


def test_a_declared_tolerance_never_refuses_the_baseline_itself() -> None:
    g = torch.Generator().manual_seed(4)
    a, b = torch.randn(64, 256, generator=g), torch.randn(256, 64, generator=g)
    # Sums that cancel: what is left is small, its error is not.
    exact = a.double() @ b.double()
    assert within(a @ b, a @ b, exact, rms=1e-9, max=1e-8)


def test_allowances_are_widened_by_errors_that_are_legal_themselves() -> None:
    given = {"1": tolerance.Allowance(1.0, 4.0), "2": tolerance.Allowance(1.0, 4.0)}
    made = tolerance.widened(given, {"2": [4.0, 3.0, 5.0, 1.0], "3": [1.0, 2.0, 2.0, 1.0]})
    assert made == {
        "1": given["1"],
        "2": tolerance.Allowance(3.0, 5.0),
        "3": tolerance.Allowance(2.0, 2.0),
    }


def test_subnormals_may_be_flushed_where_that_is_asked_for() -> None:
    small = torch.full((1000,), 1e-40, dtype=torch.float64)
    errors = bins(small.float(), small)
    zeros = bins(torch.zeros(1000), small)
    assert tolerance.exceeds(zeros, tolerance.allow(errors, "float32")) is not None
    assert tolerance.exceeds(zeros, tolerance.allow(errors, "float32", flushed=True)) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("probing", [False, True])
def test_small_normal_values_may_not_be_off_by_what_flushing_would_cost(
    dtype: torch.dtype, probing: bool
) -> None:
    g = torch.Generator().manual_seed(2)
    smallest, name = torch.finfo(dtype).smallest_normal, str(dtype).removeprefix("torch.")
    # From the smallest normal number up to four times as much, and a hundredth of all below it.
    oracle = smallest * 2 ** (2 * torch.rand(20_000, generator=g, dtype=torch.float64))
    oracle[:200] /= 16
    errors = bins(oracle.to(dtype), oracle)
    limits = tolerance.allow(errors, name, flushed=probing, slack=4 if probing else 1)
    off = torch.where(oracle < smallest, oracle, oracle + smallest)
    assert tolerance.exceeds(bins(off.to(dtype), oracle), limits) is not None
    assert tolerance.exceeds(bins(off.to(dtype), oracle), tolerance.normwise(limits, name)) is not None
    flushed = torch.where(oracle < smallest, 0.0, oracle)
    assert tolerance.exceeds(bins(flushed.to(dtype), oracle), limits) is None


def test_slack_multiplies_errors_and_not_what_flushing_costs() -> None:
    small = torch.full((1000,), 1e-40, dtype=torch.float64)
    errors = bins(small.float(), small)
    (limit,) = tolerance.allow(errors, "float32", flushed=True, slack=4).values()
    assert 2.0**-126 < limit.largest < 1.01 * 2.0**-126


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_doubles_are_held_to_their_rounding_however_large_or_small(
    scale: float, oracle: torch.Tensor
) -> None:
    oracle = oracle.clamp_min(-3) * scale
    rounded = oracle * (1 + 2.0**-52 * torch.randn(oracle.shape, dtype=torch.float64))
    assert within(rounded, oracle, oracle)
    for wrong in (oracle * (1 + 1e-12), oracle.flip(0), torch.zeros_like(oracle)):
        assert not within(wrong, oracle, oracle)
    found = tolerance.relative_error(bins(torch.zeros_like(oracle), oracle))
    assert found["rms"] == pytest.approx(1)


@pytest.mark.parametrize("limit", [math.inf, math.nan])
@pytest.mark.parametrize("error", [0.0, 1.0, math.inf, math.nan])
def test_a_limit_that_is_no_number_lets_nothing_pass(limit: float, error: float) -> None:
    found = {"270": [100.0, error, error, 1.0]}
    assert tolerance.exceeds(found, {"270": tolerance.Allowance(limit, 1.0)}) is not None
    assert tolerance.exceeds(found, {"270": tolerance.Allowance(1.0, limit)}) is not None


def test_an_error_that_is_no_number_is_beyond_every_limit() -> None:
    for error in (math.inf, math.nan):
        limits = {"270": tolerance.Allowance(1.0, 1.0)}
        assert tolerance.exceeds({"270": [100.0, error, error, 1.0]}, limits) is not None


def padded_product(columns: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    """What float32 makes of sums that cancel, half of the rows exactly zero; and what is right."""
    g = torch.Generator().manual_seed(4)
    a, b = torch.randn(256, columns, generator=g), torch.randn(columns, 256, generator=g)
    a[128:] = 0
    return a @ b, a.double() @ b.double()


def test_zeros_may_be_off_by_what_the_baseline_is_off_by_at_every_magnitude() -> None:
    baseline, exact = padded_product()
    error = float((baseline.double() - exact)[:128].square().mean().sqrt())
    noise = torch.randn(exact.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    assert within((exact + 2 * error * noise).float(), baseline, exact)
    assert not within((exact + 40 * error * noise).float(), baseline, exact)
    # Noise at zeros alone, as a mask that leaks would make it.
    for leak in (1e-4, 1e-2, 1.0):
        leaking = baseline + (leak * 16 * noise * (exact == 0)).float()
        assert not within(leaking, baseline, exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("narrow", [False, True])
def test_zeros_beside_values_that_are_only_rounded_must_be_as_exact(
    dtype: torch.dtype, narrow: bool, oracle: torch.Tensor
) -> None:
    # All of one magnitude, or of every one: neither says that the baseline is off near zero.
    kept = oracle.clamp(1, 1.9) if narrow else oracle
    relu = torch.where(oracle > 0, kept, 0.0)
    slope = 4 * torch.finfo(dtype).eps
    leaky = torch.where(oracle > 0, kept, slope * oracle)
    assert within(relu.to(dtype), relu.to(dtype), relu)
    assert not within(leaky.to(dtype), relu.to(dtype), relu)
    assert not within((relu + slope * 0.5 * (relu == 0)).to(dtype), relu.to(dtype), relu)


def test_zeros_may_not_be_off_by_what_large_values_are_off_by() -> None:
    g = torch.Generator().manual_seed(6)
    values = torch.exp(4 * torch.randn(20_000, generator=g, dtype=torch.float64))
    oracle = torch.where(torch.rand(20_000, generator=g) < 0.5, values, 0.0)
    baseline = (oracle * (1 + 1e-3 * torch.randn(20_000, generator=g, dtype=torch.float64))).float()
    assert within(baseline, baseline, oracle)
    assert not within(torch.where(oracle == 0, 0.1, baseline.double()).float(), baseline, oracle)


@pytest.mark.parametrize(("dtype", "kept"), [("float64", True), ("complex128", True), ("float32", False)])
def test_errors_that_cannot_but_be_zero_do_not_water_down_what_noise_taught(dtype: str, kept: bool) -> None:
    noise = [100.0, 1e-16, 4e-16, 1.0]
    leaves = [{"path": "out", "kind": "tensor", "dtype": dtype}]
    known = Study({}, leaves=leaves, bins={"out": {"270": list(noise)}})
    zeros = {"270": [100.0, 0.0, 0.0, 1.0], "271": [5.0, 0.0, 0.0, 20.0]}
    bench: Any = SimpleNamespace(
        errors=lambda call, bulk: [{"path": "out", "bins": zeros, "bulk": zeros, "nonfinite": 0}]
    )
    call: Any = SimpleNamespace(leaves=[])
    for _ in range(5):
        learn(bench, known, call)
    assert (known.bins["out"]["270"] == noise) is kept
    assert known.bins["out"].keys() == {"270", "271"}


def test_the_one_smallest_output_of_a_relu_may_be_off_like_the_next_larger_ones() -> None:
    refused = 0
    for seed in range(200):
        g = torch.Generator().manual_seed(seed)
        before = 30 * torch.randn(8192, generator=g, dtype=torch.float64)
        baseline, candidate = (
            (before + sigma * torch.randn(8192, generator=g, dtype=torch.float64)).clamp(min=0).float()
            for sigma in (3e-3, 9e-3)
        )
        refused += not within(candidate, baseline, before.clamp(min=0))
    assert not refused


def test_small_values_that_the_baseline_has_exact_get_no_licence_from_larger_ones() -> None:
    g = torch.Generator().manual_seed(1)
    # Errors follow the values, over eight decades; of the smallest there are but a few.
    oracle = torch.exp(-20 * torch.rand(20_000, generator=g, dtype=torch.float64).sqrt())
    baseline = noisy(oracle, 2)
    few = oracle < torch.quantile(oracle, 0.005)
    assert within(noisy(oracle, 4), baseline, oracle)
    assert not within(torch.where(few, 0.0, baseline), baseline, oracle)


def test_the_one_largest_error_that_is_allowed_does_not_fail_its_bin_in_the_mean(
    oracle: torch.Tensor,
) -> None:
    # Adam's step where a gradient is next to nothing: one element in hundreds is off, and by much.
    far = torch.arange(len(oracle)) % 1000 == 0
    baseline = torch.where(far, oracle * (1 + 1e-3), noisy(oracle, 1)).float()
    few = oracle[900:1001]
    candidate = torch.where(far[900:1001], few * (1 + 1e-3), noisy(few, 1)).float()
    allowances = tolerance.allow(bins(baseline, oracle), "float32", {"rms": 1e-5, "max": 1e-4})
    assert tolerance.exceeds(bins(candidate, few), allowances) is None
    shifted = (few * (1 + 1e-3)).float()
    assert tolerance.exceeds(bins(shifted, few), allowances) is not None


def test_few_small_values_must_be_as_exact_as_larger_ones_where_errors_follow_the_values() -> None:
    g = torch.Generator().manual_seed(1)
    large, middle = (
        scale * (1 + torch.rand(2000, generator=g, dtype=torch.float64)) for scale in (1.0, 0.06)
    )
    few = 1e-4 * (1 + torch.rand(20, generator=g, dtype=torch.float64))
    oracle = torch.cat([large, middle, few])
    baseline = noisy(oracle, 2)
    assert within(noisy(oracle, 8), baseline, oracle)
    # Next to nothing beside what the larger ones are off by; 0.2 % of these.
    off = torch.cat([torch.zeros(4000, dtype=torch.float64), torch.full((20,), 2e-7, dtype=torch.float64)])
    assert not within((baseline.double() + off).float(), baseline, oracle)


def elu(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, torch.exp(x) - 1)


def test_small_values_may_be_off_by_a_rounding_step_of_most_values() -> None:
    for seed in range(200):
        x = torch.randn(8192, generator=torch.Generator().manual_seed(seed))
        exact = torch.nn.functional.elu(x.double())
        assert within(elu(x), torch.nn.functional.elu(x), exact)


def test_small_values_may_not_be_off_by_that_where_the_task_is_about_them() -> None:
    g = torch.Generator().manual_seed(1)
    small = 1e-8 * (1 + torch.rand(1500, generator=g, dtype=torch.float64))
    oracle = torch.cat([1 + torch.rand(18_500, generator=g, dtype=torch.float64), small])
    baseline = noisy(oracle, 1)
    zeroed = torch.where(oracle < 1e-6, 0.0, baseline).float()
    assert not within(zeroed, baseline, oracle)
    # On probes they may: how exact small values must be, the task's own inputs decide.
    allowances = tolerance.allow(bins(baseline, oracle), "float32", flushed=True)
    assert tolerance.exceeds(bins(zeroed, oracle), allowances) is None


@pytest.mark.parametrize("share", [0.03, 0.3])
def test_outliers_do_not_let_all_other_values_be_coarse(oracle: torch.Tensor, share: float) -> None:
    large = torch.rand(len(oracle), generator=torch.Generator().manual_seed(2)) < share
    mixed = torch.where(large, 1e5 * oracle, oracle)
    baseline = noisy(mixed, 1)
    coarse = torch.where(large, baseline, (baseline.double() * 1024).round() / 1024).float()
    assert within(baseline, baseline, mixed)
    assert not within(coarse, baseline, mixed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_small_values_of_narrow_types_may_not_be_off_by_a_step_of_large_ones(
    dtype: torch.dtype, oracle: torch.Tensor
) -> None:
    step = torch.finfo(dtype).eps
    off = (oracle + step * torch.sign(oracle)).to(dtype)
    assert not within(off, oracle.to(dtype), oracle)


def test_a_step_on_the_task_s_own_inputs_is_one_on_smaller_ones() -> None:
    x = torch.randn(8192, generator=torch.Generator().manual_seed(1))
    own, probe = (bins(torch.nn.functional.elu(y), torch.nn.functional.elu(y.double())) for y in (x, x / 64))
    candidate = bins(elu(x / 64), torch.nn.functional.elu(x.double() / 64))
    assert tolerance.exceeds(candidate, tolerance.allow(probe, "float32", slack=4)) is not None
    assert tolerance.exceeds(candidate, tolerance.allow(probe, "float32", own=own, slack=4)) is None


def test_a_step_of_large_inputs_is_one_of_what_is_left_of_them_unless_that_is_coarse() -> None:
    g = torch.Generator().manual_seed(1)
    oracle = torch.exp(-8 * torch.rand(4096, generator=g, dtype=torch.float64))
    baseline = bins(noisy(oracle, 1), oracle)
    step = 50 * EPS["float32"]
    noise = torch.randn(4096, generator=g, dtype=torch.float64)
    found = bins((oracle + step * noise).float(), oracle)
    assert tolerance.exceeds(found, tolerance.allow(baseline, "float32")) is not None
    assert tolerance.exceeds(found, tolerance.allow(baseline, "float32", inputs=200.0)) is None
    off = bins((oracle * 1.01).float(), oracle)
    assert tolerance.exceeds(off, tolerance.allow(baseline, "float32", inputs=1e30)) is not None


def test_errors_of_two_kinds_count_where_they_are_larger() -> None:
    one, other = {"270": [10.0, 1.0, 2.0, 5.0]}, {"270": [4.0, 0.5, 3.0, 5.0], "271": [1.0, 0.1, 0.1, 80.0]}
    assert tolerance.at_least(one, other) == {"270": [10.0, 1.0, 3.0, 5.0], "271": [1.0, 0.1, 0.1, 80.0]}


def test_a_wide_output_of_narrow_arithmetic_is_held_to_narrow_arithmetic() -> None:
    bins = {"130": [4096.0, 2e-3, 1e-2, 1.0]}
    wide, narrow = (tolerance.allow(bins, "float32", narrow=one)["130"] for one in (False, True))
    assert (wide.rms, wide.largest) == (16 * 2e-3, 16 * 1e-2)
    assert (narrow.rms, narrow.largest) == (4 * 2e-3, 8 * 1e-2)
    assert tolerance.legal_factor("float32", True, bins) == 4


def test_an_output_that_narrow_arithmetic_does_not_show_in_is_a_wide_one() -> None:
    bins = {"130": [4096.0, 5e-7, 2e-6, 1.0]}
    assert tolerance.allow(bins, "float32", narrow=True) == tolerance.allow(bins, "float32")
    assert tolerance.legal_factor("float32", True, bins) == 16
