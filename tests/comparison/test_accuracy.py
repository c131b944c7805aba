"""Errors against the oracle, per bin of its magnitude."""

import io
import math

import pytest
import torch
from rich.console import Console

from trackside.comparison import accuracy, tolerance
from trackside.report import compare_text


def total(result: dict, column: int) -> float:
    """Of all bins: how many elements, or the sum of their squares."""
    return sum(b[0] * (b[column] ** 2 if column else 1) for b in result["bins"].values())


def test_every_element_is_counted_once_and_squares_add_up() -> None:
    g = torch.Generator().manual_seed(0)
    oracle = torch.randn(999, generator=g, dtype=torch.float64) * torch.logspace(-30, 30, 999).double()
    found = (oracle * (1 + 1e-6)).float()
    result = accuracy.measure(found, oracle)
    error = (found.double() - oracle).abs()
    assert total(result, 0) == 999
    assert total(result, 1) == pytest.approx(float((error**2).sum()))
    assert max(b[2] for b in result["bins"].values()) == float(error.max())
    assert total(result, 3) == pytest.approx(float((oracle**2).sum()))


def test_values_a_factor_of_sixteen_apart_lie_in_different_bins_and_zero_in_its_own() -> None:
    oracle = torch.tensor([1.0, 16.0, 256.0, 0.0], dtype=torch.float64)
    result = accuracy.measure(oracle.float(), oracle)
    assert len(result["bins"]) == 4
    assert str(accuracy.ZERO_BIN) in result["bins"]


@pytest.mark.parametrize("extreme", [5e-324, 2.0**-1022, 1e-308, 1.7e308])
def test_the_whole_range_of_float64_has_a_bin(extreme: float) -> None:
    oracle = torch.tensor([extreme, -extreme], dtype=torch.float64)
    result = accuracy.measure(oracle.clone(), oracle)
    (name,) = result["bins"]
    assert 0 <= int(name) < accuracy.ZERO_BIN


@pytest.mark.gpu
def test_errors_among_subnormal_doubles_are_numbers_on_a_gpu() -> None:
    oracle = torch.tensor([0.0, 5e-324, 1e-310, 1.0] * 64, dtype=torch.float64, device="cuda")
    rows = accuracy.measure(torch.zeros_like(oracle), oracle)["bins"].values()
    assert all(math.isfinite(number) for row in rows for number in row)


def test_the_gpu_s_way_of_binning_gives_the_cpu_s_answer() -> None:
    g = torch.Generator().manual_seed(0)
    oracle = torch.randn(5000, generator=g, dtype=torch.float64) * 1e3
    oracle[::7] = 0
    error = torch.rand(5000, generator=g, dtype=torch.float64)
    index = accuracy._bin_index(oracle)
    by_count, by_mask = accuracy._by_count(index, error, oracle), accuracy._by_mask(index, error, oracle)
    assert by_count.keys() == by_mask.keys()
    for name, values in by_count.items():
        assert by_mask[name] == pytest.approx(values)


@pytest.mark.parametrize(
    ("expected", "found", "wrong"),
    [
        (math.nan, math.nan, 0),
        (math.inf, math.inf, 0),
        (math.inf, -math.inf, 1),
        (math.inf, math.nan, 1),
        (math.nan, 0.0, 1),
        (1.0, math.nan, 1),
        (1.0, math.inf, 1),
        (1e300, math.inf, 0),
        (1e300, 3.4e38, 1),
    ],
)
def test_infinities_and_nan_must_be_where_the_rounded_oracle_has_them(
    expected: float, found: float, wrong: int
) -> None:
    oracle = torch.tensor([1.0, expected], dtype=torch.float64)
    result = accuracy.measure(torch.tensor([1.0, found]), oracle)
    assert result["nonfinite"] == wrong
    assert result["nonfinite_at"] == ([1] if wrong else None)


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float64])
@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, complex(0, math.inf)])
def test_plain_numbers_beyond_all_are_not_finite(number: complex, dtype: torch.dtype | None) -> None:
    assert not accuracy.is_finite(number, dtype if isinstance(number, float) else None)


def test_a_plain_float_may_be_too_large_for_float32_only() -> None:
    assert accuracy.is_finite(1e300, torch.float64)
    assert not accuracy.is_finite(1e300, torch.float32)
    assert all(accuracy.is_finite(one, torch.float32) for one in (1.0, 10**300, True, "inf", None))


def test_an_empty_output_has_no_bins() -> None:
    result = accuracy.measure(torch.empty(0, 3), torch.empty(0, 3, dtype=torch.float64))
    assert (result["bins"], result["nonfinite"], result["elements"]) == ({}, 0, 0)


def test_complex_outputs_are_measured_part_by_part() -> None:
    oracle = torch.tensor([1 + 100j], dtype=torch.complex128)
    result = accuracy.measure(oracle.to(torch.complex64) + 0.5, oracle)
    assert total(result, 0) == 2
    assert result["elements"] == 2
    assert max(b[2] for b in result["bins"].values()) == pytest.approx(0.5)


def test_strided_outputs_are_compared_element_by_element() -> None:
    oracle = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    found = oracle.float().t().contiguous().t()
    assert found.stride() == (1, 3)
    assert total(accuracy.measure(found, oracle), 1) == 0


def test_the_element_furthest_beyond_its_allowance_is_located() -> None:
    oracle = torch.full((3, 4), 100.0, dtype=torch.float64)
    oracle[0, 0] = 1e-3
    found = oracle.float()
    found[2, 1] += 1.0
    found[0, 0] += 1e-4
    index = accuracy._bin_index(oracle)
    allowed = {str(int(index[0, 0])): 1e-6, str(int(index[1, 1])): 1e-3}
    spot = accuracy.locate(found, oracle, allowed)
    assert spot["index"] == [2, 1]
    assert (spot["expected"], spot["found"]) == (100.0, 101.0)


def test_a_nan_is_located_before_any_finite_error() -> None:
    oracle = torch.ones(4, dtype=torch.float64)
    found = torch.tensor([1.0, 2.0, math.nan, 1.0])
    spot = accuracy.locate(found, oracle, {str(int(accuracy._bin_index(oracle)[0])): 1e-6})
    assert spot["index"] == [2]
    assert spot["found"] == "nan"


def test_a_narrower_oracle_and_one_with_the_negative_bit_are_measured_as_any_other() -> None:
    wide = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).float()
    plain = accuracy.measure(wide, wide.double())["bins"]
    assert accuracy.measure(wide, wide)["bins"] == plain
    turned = torch.complex(torch.zeros(7, dtype=torch.float64), -wide.double()).conj().imag
    assert turned.is_neg()
    assert accuracy.measure(wide, turned)["bins"] == plain


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-200, 1.0, 1e200, 1e307])
def test_means_of_squares_neither_overflow_nor_vanish(scale: float) -> None:
    oracle = torch.tensor([3.0, 4.0], dtype=torch.float64) * scale
    index, error = accuracy._bin_index(oracle), oracle.flip(0).clone()
    for way in (accuracy._by_count, accuracy._by_mask):
        (row,) = way(index, error, oracle).values()
        assert row == pytest.approx(
            [2, math.sqrt(12.5) * scale, 4 * scale, math.sqrt(12.5) * scale], rel=0.15, abs=0
        )


def test_an_error_beyond_all_numbers_is_infinite_and_no_nan() -> None:
    oracle = torch.tensor([1.7e308, 1.7e308], dtype=torch.float64)
    (row,) = accuracy.measure(-oracle, oracle)["bins"].values()
    assert row[1:3] == [math.inf, math.inf]
    assert row[3] == pytest.approx(1.7e308)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2]
)
def test_the_bin_of_a_type_s_smallest_normal_number_begins_with_it(dtype: torch.dtype) -> None:
    smallest = torch.finfo(dtype).smallest_normal
    oracle = torch.tensor([smallest / 2, smallest, 1.9 * smallest, 2 * smallest], dtype=torch.float64)
    subnormal, first, same, above = accuracy._bin_index(oracle, dtype).tolist()
    assert (subnormal, same, above) == (first - 1, first, first + 1)
    assert first == tolerance.smallest_bin(str(dtype).removeprefix("torch."))


@pytest.mark.parametrize("which", ["candidate", "baseline"])
def test_an_error_that_a_record_cannot_hold_is_shown_as_infinite(which: str) -> None:
    small = {"candidate": {"rms": 1e-7, "max": 1e-6}, "baseline": {"rms": 2e-7, "max": 1e-6}}
    outputs = [{"path": "out[0]"} | small, {"path": "out[1]"} | small | {which: {"rms": None, "max": None}}]
    record = dict.fromkeys(("speedup", "statistics", "floor", "memory", "baseline")) | {
        "verdict": "inconclusive",
        "timings": {},
        "environment": {},
        "accuracy": {
            "outputs": outputs if which == "candidate" else outputs[1:],
            "oracle": "run in float64",
            "probes": {},
            "checked_calls": 1,
        },
    }
    out = io.StringIO()
    compare_text._evidence(record, Console(file=out, width=200))
    assert "out[1]" in out.getvalue()
    assert "infinite" in out.getvalue()


def test_a_channel_of_small_values_is_a_part_of_its_own_and_scattered_ones_are_none() -> None:
    g = torch.Generator().manual_seed(3)
    values = torch.randn(4, 25, 8, 8, generator=g, dtype=torch.float64).abs() + 1
    scattered, channel, padded = (values.clone() for _ in range(3))
    scattered.view(-1)[::50] = 1e-9
    channel[:, 24] = 1e-9
    padded[:, 24] = 0
    assert not accuracy.has_small_part(values, 1e-6)
    assert not accuracy.has_small_part(scattered, 1e-6)
    assert not accuracy.has_small_part(padded, 1e-6)
    assert accuracy.has_small_part(channel, 1e-6)
    assert accuracy.has_small_part(channel.mT.contiguous(), 1e-6)
    # A few numbers that are small are small change.
    assert not accuracy.has_small_part(torch.tensor([[1.0, 1e-9], [2.0, 1e-9]]), 1e-6)
