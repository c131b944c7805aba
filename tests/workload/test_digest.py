"""Digests of the state's leaves: whatever bit changes, they do."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from trackside.workload import digest as digests
from trackside.workload.digest import digest


def flipped(tensor: torch.Tensor, place: int) -> torch.Tensor:
    changed = tensor.clone()
    changed.view(torch.uint8).reshape(-1)[place] ^= 1
    return changed


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([0.0, 1.0, -math.inf]),
        torch.tensor([2**60, 3, 4]),
        torch.zeros(5, dtype=torch.bfloat16),
        torch.zeros(3, dtype=torch.bool),
        torch.zeros(2, 3, dtype=torch.complex64),
        torch.full((4,), math.nan, dtype=torch.float64),
    ],
)
def test_one_changed_bit_shows(tensor: torch.Tensor, on_device: bool) -> None:
    def told(value: torch.Tensor) -> Any:
        return digests.hash_on_device(value.reshape(-1), 5) if on_device else digest(value)

    seen = [told(flipped(tensor, place)) for place in range(tensor.nbytes)]
    assert told(tensor.clone()) == told(tensor)
    assert told(tensor) not in seen
    assert len({str(one) for one in seen}) == len(seen)


def test_changes_that_keep_every_sum_show() -> None:
    before = torch.tensor([1.0, 2.0, 3.0, 4.0])
    after = torch.tensor([2.0, 0.0, 5.0, 3.0])
    assert before.sum() == after.sum()
    assert digest(before) != digest(after)
    # Two flipped signs add up to nothing in a sum of words.
    negated = torch.tensor([1.0, -2.0, 3.0, -4.0])
    assert digests.hash_on_device(before, 1) != digests.hash_on_device(negated, 1)
    assert digests.hash_on_device(before, 1) != digests.hash_on_device(before.flip(0), 1)


def test_a_hash_on_the_device_takes_any_length_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    data = torch.arange(1, 102, dtype=torch.uint8)
    whole = {n: digests.hash_on_device(data[:n], 3) for n in range(101)}
    assert len(set(whole.values())) == 101
    assert digests.hash_on_device(torch.cat([data[:3], data])[3:], 3) == digests.hash_on_device(data, 3)
    monkeypatch.setattr(digests, "_CHUNK", 2)
    assert {n: digests.hash_on_device(data[:n], 3) for n in range(101)} == whole


def test_the_key_changes_the_hash_and_the_layout_does_not() -> None:
    square = torch.arange(6.0).reshape(2, 3)
    assert digest(square, "a") != digest(square, "b")
    assert digest(square.t().contiguous().t()) == digest(square)
    assert digest(square.reshape(3, 2)) != digest(square)
    z = torch.randn(3, dtype=torch.complex64)
    assert digest(z.conj()) == digest(z.conj().resolve_conj())
    assert digest(z.conj()) != digest(z)


@pytest.mark.parametrize(
    ("one", "other"),
    [(2**53, 2**53 + 1), (10**5000, 10**5000 + 1), (0.1, math.nextafter(0.1, 1)), (1.0, math.inf)],
    ids=["beyond doubles", "long", "last place", "infinite"],
)
def test_plain_numbers_are_told_apart_exactly(one: float, other: float) -> None:
    assert digest(one) != digest(other)
    assert digest(one) == digest(one)
    assert digest(math.nan) == digest(math.nan)
    assert digest(3) == digest(3.0)


def test_moments_are_finite_and_near_where_leaves_are() -> None:
    one = torch.randn(1000)
    one[3] = -math.inf
    near = digest(one + 1e-6, moments=True)
    first, second, size, _hash = digest(one, moments=True)
    assert (size, near[2]) == (1000.0, 1000.0)
    assert np.allclose([first, second], near[:2], atol=1e-2)
    assert digest(one)[:2] == [0.0, 0.0]
