"""How much error is allowed: the baseline's own, in bins of magnitude, with a floor in ulps."""

import math

import pytest
import torch

from trackside.comparison import accuracy, tolerance

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
    into: tolerance.Bins = {"270": [2.0, 1.0, 0.5, 4.0]}
    tolerance.merge(into, {"270": [3.0, 2.0, 0.25, 1.0], "280": [1.0, 0.0, 0.0, 9.0]})
    assert into == {"270": [5.0, 3.0, 0.5, 5.0], "280": [1.0, 0.0, 0.0, 9.0]}


def test_relative_error_of_nothing_is_zero() -> None:
    assert tolerance.relative_error({}) == {"rms": 0.0, "max": 0.0}


def test_elements_beyond_are_as_many_as_make_up_the_sum_of_squares() -> None:
    allowances = {name: tolerance.Allowance(1.0, 4.0) for name in "123"}
    one_of_thousand = [1000.0, 5.0**2 + 0.1, 5.0, 1.0]
    in_the_mean = [30.0, 30 * 2.0**2, 5.0, 1.0]
    within_both = [970.0, 1.0, 1.0, 1.0]
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
    made = tolerance.widened(given, {"2": [4.0, 36.0, 5.0, 1.0], "3": [1.0, 4.0, 2.0, 1.0]})
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
