"""Scores that an operator makes equal, and other orders of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.comparison.test_oracle import workload

from trackside.comparison import ties
from trackside.comparison.oracle import Oracle

X = torch.tensor([300.0, 400.0, 1.0, 200.0, 500.0])


def ordered(call: Any, x: torch.Tensor = X) -> list[torch.Tensor]:
    """What a task answers under each order of equals, the one that scores had at first."""
    oracle = Oracle(workload(lambda state, args: call(args[0])), "cpu")
    g = torch.Generator().manual_seed(1)
    return [oracle.answer_ordered((x,), 0, (), order)["out"] for order in ties.orders(g)]


@pytest.mark.parametrize("squash", [torch.tanh, torch.sigmoid, torch.erf, lambda x: x.clone().sigmoid_()])
@pytest.mark.parametrize("sign", [1, -1])
def test_what_saturates_comes_in_the_order_that_it_had(squash: Any, sign: int) -> None:
    first, reverse, *_ = ordered(lambda x: squash(x).argsort(), sign * X)
    assert torch.equal(first, (sign * X).argsort())
    flat = [i for i in reverse.tolist() if i != 2]
    assert flat == [i for i in first.tolist() if i != 2][::-1]


@pytest.mark.parametrize("squash", [torch.exp, torch.sigmoid, lambda x: torch.softmax(x, -1)])
def test_what_vanishes_comes_in_the_order_that_it_had(squash: Any) -> None:
    assert torch.equal(ordered(lambda x: squash(1 - x).argsort(), 4 * X)[0], (1 - 4 * X).argsort())


def test_a_function_that_falls_turns_the_order_round() -> None:
    assert torch.equal(ordered(lambda x: torch.erfc(x).argsort())[0], (-X).argsort())


@pytest.mark.parametrize("squash", [torch.tanh, torch.sigmoid, torch.exp, lambda x: torch.softmax(-x, -1)])
def test_no_order_of_equals_moves_their_values(squash: Any) -> None:
    x = torch.randn(1 << 16, generator=torch.Generator().manual_seed(2)) * 40
    for moved in ordered(squash, x):
        torch.testing.assert_close(moved, squash(x.double()), rtol=2.0**-23, atol=1.2e-38)


def test_equals_that_go_in_stay_equals() -> None:
    assert torch.unique(ordered(lambda x: torch.tanh(x), torch.full((9,), 300.0))[0]).numel() == 1


def test_masks_of_infinity_have_no_order() -> None:
    x = torch.tensor([-torch.inf, 0.0, -torch.inf])
    assert all(torch.equal(one, torch.softmax(x.double(), -1)) for one in ordered(lambda x: x.softmax(-1), x))
