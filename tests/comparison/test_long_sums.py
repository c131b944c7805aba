"""A batch norm's sums as other code adds them: as far off as adding in a row takes them, and no further."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trackside.comparison.long_sums import summed_otherwise
from trackside.comparison.rerounding import Reround

# What checks allow a float32 that is learnt or summed: so many times the errors that are seen.
FACTOR = 16
aten = torch.ops.aten


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def moves(operator: Any, args: Any, made: Any, draws: int = 8) -> list[torch.Tensor]:
    """How far each result of an operator is moved at most, over some draws."""
    values = made if isinstance(made, tuple) else (made,)
    most = [torch.zeros_like(value) for value in values]
    for salt in range(1, draws + 1):
        moved = summed_otherwise(operator, args, values, Reround(52, 0, salt << 20))
        most = [torch.maximum(a, (b - c).abs()) for a, b, c in zip(most, moved, values, strict=True)]
    return most


def rms(x: torch.Tensor) -> float:
    return float(x.double().square().mean().sqrt())


def test_sums_of_the_tasks_own_are_what_they_are() -> None:
    # In a row they may be further off than float16 makes of their terms, which no check would see then.
    terms = drawn(4, 64, 4096)
    made = (terms.sum(1),)
    assert summed_otherwise(aten.sum.dim_IntList, (terms, [1]), made, Reround(52, 0, 7)) is made


def test_nobody_adds_millions_in_a_row() -> None:
    def mean_off(side: int) -> float:
        x = drawn(6, 1, 1, side, side)
        args = (x, None, None, None, None, True, 0.1, 1e-5)
        return float(moves(aten.native_batch_norm.default, args, aten.native_batch_norm(*args))[1])

    # 64 times the terms: in one row the mean would be off as before, in many an eighth of that.
    assert mean_off(1 << 11) < 0.5 * mean_off(1 << 8)


def norm(x: torch.Tensor, grads: torch.Tensor, salt: int = 0) -> tuple[torch.Tensor, ...]:
    """Output, mean and inverse deviation of a batch norm; gradients of its input, weight and bias.

    With a `salt`, as other code may have them, the backward pass from what the forward pass left.
    """
    weight, bias = torch.ones(x.shape[1], dtype=x.dtype), torch.zeros(x.shape[1], dtype=x.dtype)
    reround = Reround(52, 0, salt << 20)
    args = (x, weight, bias, None, None, True, 0.1, 1e-5)
    forward = aten.native_batch_norm(*args)
    if salt:
        forward = summed_otherwise(aten.native_batch_norm.default, args, forward, reround)
    args = (grads, x, weight, None, None, *forward[1:], True, 1e-5, [True, True, True])
    backward = aten.native_batch_norm_backward(*args)
    if salt:
        backward = summed_otherwise(aten.native_batch_norm_backward.default, args, backward, reround)
    return *forward, *backward


@pytest.mark.parametrize(("shift", "slope"), [(0.0, 0.0), (0.5, 0.2), (3.0, 0.2), (0.0, 2.0)])
def test_a_batch_norm_with_the_channels_last_is_within_what_is_allowed(shift: float, slope: float) -> None:
    x, grads = drawn(7, 16, 8, 32, 32) + shift, drawn(8, 16, 8, 32, 32) + slope
    exact, here = norm(x.double(), grads.double()), norm(x, grads)
    others = [norm(x, grads, salt) for salt in range(1, 9)]
    threads = torch.get_num_threads()
    try:
        # One row and not one for each thread.
        torch.set_num_threads(1)
        found = norm(*(t.contiguous(memory_format=torch.channels_last) for t in (x, grads)))
    finally:
        torch.set_num_threads(threads)
    for i, (one, right) in enumerate(zip(found, exact, strict=True)):
        seen = max(rms(other[i] - here[i]) for other in others)
        assert rms(one - right) < FACTOR * seen + 8 * 2**-23 * rms(right)
        # And that is little: who leaves out the norm's mean, or its share of the gradient, is further off.
        assert FACTOR * seen < 1e-2 * max(rms(right), 0.1)


def test_a_norms_running_statistics_are_what_its_own_sums_make_of_them() -> None:
    x = drawn(9, 16, 8, 32, 32)
    running = torch.zeros(8), torch.ones(8)
    args = (x, None, None, *running, True, 0.1, 1e-5)
    made = aten.native_batch_norm(*args)
    before = [one.clone() for one in running]
    summed_otherwise(aten.native_batch_norm.default, args, made, Reround(52, 0, 99 << 20))
    for now, then in zip(running, before, strict=True):
        assert 0 < float((now - then).abs().max()) < 1e-5


@pytest.mark.parametrize("kind", ["native", "cudnn", "either"])
def test_a_norms_derivative_moves_alike_whichever_way_it_takes_its_arguments(kind: str) -> None:
    x, grads, weight = drawn(7, 16, 8, 32, 32), drawn(8, 16, 8, 32, 32) + 0.2, torch.ones(8)
    mean, inverse = x.mean((0, 2, 3)), 1 / x.std((0, 2, 3))
    made = norm(x, grads)[3:]
    rest = (weight, None, None, mean, inverse)
    operator, args = {
        "native": (aten.native_batch_norm_backward, (grads, x, *rest, True, 1e-5)),
        "cudnn": (aten.cudnn_batch_norm_backward, (x, grads, *rest, 1e-5, x)),
        "either": (aten.batch_norm_backward, (grads, x, *rest, True, 1e-5)),
    }[kind]
    wanted = moves(aten.native_batch_norm_backward.default, (grads, x, *[None] * 5, True), made)
    for one, other in zip(moves(operator.default, args, made), wanted, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("shape", [(2, 8, 8, 8), (16, 8, 32, 32)])
def test_a_norm_that_is_not_in_training_or_small_adds_nothing_up(shape: tuple[int, ...]) -> None:
    x = drawn(9, *shape)
    args = (x, None, None, torch.zeros(8), torch.ones(8), shape[0] < 16, 0.1, 1e-5)
    made = aten.native_batch_norm(*args)
    assert summed_otherwise(aten.native_batch_norm.default, args, made, Reround(52, 0, 5)) is made
