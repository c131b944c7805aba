"""What a task is seen to compute in, by the operators that it calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.comparison.test_oracle import workload

from trackside.comparison.operators import Arithmetic
from trackside.comparison.oracle import Oracle

X = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))


def seen(call: Callable[[torch.Tensor], Any], x: torch.Tensor = X) -> Arithmetic | None:
    return Oracle(workload(lambda state, args: call(args[0])), "cpu").arithmetic((x,), 0)


def in_autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ x).float()


def a_gradient(x: torch.Tensor, bent: Any) -> torch.Tensor:
    x = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(bent(x).sum(), [x])
    return found


@pytest.mark.parametrize(
    ("call", "narrow"),
    [
        pytest.param(lambda x: x @ x, False, id="float32"),
        pytest.param(lambda x: x.double() @ x.double(), False, id="float64"),
        pytest.param(lambda x: (x.bfloat16() @ x.bfloat16()).float(), True, id="bfloat16-products"),
        pytest.param(lambda x: torch.stack([x.half(), x.half()]).sum(0).float(), True, id="half-in-a-list"),
        pytest.param(in_autocast, True, id="autocast"),
    ],
)
def test_narrow_is_what_computes_in_a_narrow_type_whatever_comes_out(call: Any, narrow: bool) -> None:
    found = seen(call)
    assert found is not None
    assert (found.narrow, found.derives) == (narrow, False)


@pytest.mark.parametrize(
    ("call", "doubles"),
    [
        (lambda x: x.double().sum().item(), True),
        (lambda x: x.sum(dtype=torch.float64).item(), True),
        (lambda x: (x > 0).double().mean().item(), True),
        (lambda x: torch.zeros(8, 8, dtype=torch.float64).copy_(x).sum().item(), True),
        (lambda x: (x > 0).sum().item() / 64, False),
        (lambda x: sum(x.flatten().tolist()) / 64, False),
        (lambda x: x.float().mean().item() * 0.5, False),
    ],
)
def test_who_has_torch_compute_with_doubles_is_seen_and_who_divides_in_python_is_none(
    call: Any, doubles: bool
) -> None:
    found = seen(call)
    assert found is not None
    assert found.doubles is doubles


def test_narrow_inputs_that_are_widened_before_anything_is_computed_are_not_narrow_arithmetic() -> None:
    assert seen(lambda x: x.float() @ x[2:].T.float(), X.bfloat16()) == Arithmetic()


def test_narrow_inputs_that_are_computed_with_as_they_are_are_narrow_arithmetic() -> None:
    assert seen(lambda x: (x @ x).float(), X.bfloat16()) == Arithmetic(narrow=True)


@pytest.fixture
def short_products() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("short_products")
def test_products_that_torch_may_shorten_are_narrow() -> None:
    assert seen(lambda x: x @ x) == Arithmetic(narrow=True)
    assert seen(lambda x: x * x) == Arithmetic()


@pytest.mark.parametrize("bent", [torch.relu, lambda x: x.clamp(min=0).abs()])
def test_derivatives_are_seen_whatever_operators_they_are_made_of(bent: Any) -> None:
    assert seen(lambda x: a_gradient(x, bent)) == Arithmetic(derives=True)


def test_rounding_by_a_cast_is_narrow_arithmetic_and_moving_narrow_numbers_is_not() -> None:
    assert seen(lambda x: x.bfloat16().float() @ x) == Arithmetic(narrow=True)
    kept = X.bfloat16()
    for moved in (
        lambda x: torch.cat([x, x]),
        lambda x: x.unsqueeze(0),
        lambda x: x.split(2)[1],
        torch.clone,
    ):
        assert seen(lambda x, moved=moved: moved(x).float() * 3, kept) == Arithmetic()


def test_what_torchs_newer_names_say_of_products_is_no_error() -> None:
    before = torch.backends.fp32_precision
    try:
        torch.backends.fp32_precision = "tf32"
        found = seen(lambda x: x @ x)
    finally:
        torch.backends.fp32_precision = before
    assert found == Arithmetic(narrow=True)


def test_of_what_cannot_be_watched_nothing_is_known() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("not under a mode")

    assert seen(fails) is None


@pytest.mark.parametrize(
    ("call", "beyond"),
    [
        (lambda x: torch.linalg.inv(x * 2.0**70), True),
        (lambda x: torch.linalg.solve(x * 2.0**70, x), True),
        (lambda x: torch.linalg.svdvals(x * 2.0**70), True),
        (lambda x: torch.linalg.inv(x), False),
        (lambda x: x * 2.0**70, False),
    ],
)
def test_solvers_scale_what_a_closed_form_would_multiply(call: Any, beyond: bool) -> None:
    oracle = Oracle(workload(lambda state, args: call(args[0])), "cpu")
    oracle.answer((X,), 0)
    assert oracle.squared is beyond


@pytest.mark.parametrize(
    ("call", "lost"),
    [
        (lambda x: torch.log(x).topk(3).indices, True),
        (lambda x: torch.log(x).argmax(-1), True),
        (lambda x: torch.log(x).sort().indices, True),
        (lambda x: torch.log(x), False),
        (lambda x: x.topk(3).indices, False),
        (lambda x: torch.log(x.abs()).topk(3).indices, False),
    ],
)
def test_what_is_no_number_has_no_order(call: Any, lost: bool) -> None:
    oracle = Oracle(workload(lambda state, args: call(args[0])), "cpu")
    oracle.answer((X,), 0)
    assert oracle.ranked_nan is lost
