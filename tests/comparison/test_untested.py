"""Inputs and state that are the same every time."""

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from trackside.comparison.oracle import Oracle
from trackside.comparison.sets import InputSet
from trackside.comparison.untested import answers_ignoring, as_constructed, never_raised, overwritten


def oracle(run: Callable[..., Any], *changed: int) -> Oracle:
    made = Oracle(types.SimpleNamespace(reference=None, call=lambda held, args: run(*args)), "cpu")
    made.changed_inputs = list(changed)
    return made


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (nn.LayerNorm(4), ["weight", "bias"]),
        ({"moments": torch.zeros(3), "changed": torch.zeros(3)}, ["['moments']"]),
        (torch.zeros(2, 3, dtype=torch.complex64).T, ["state"]),
        (torch.ones(4).to(torch.float8_e4m3fn), ["state"]),
        (torch.zeros(4).expand(3, 4), ["state"]),
        (nn.Linear(4, 4), []),
        ([torch.tensor([0.0, 1.0]), torch.full((3,), 2.0), torch.tensor([float("nan")] * 2)], []),
        ([torch.zeros(()), torch.ones(1), torch.zeros(0), torch.zeros(4, dtype=torch.int64), 0.0], []),
    ],
)
def test_state_counts_as_constructed_where_it_is_all_zero_or_all_one_and_no_call_changes_it(
    held: Any, wanted: list[str]
) -> None:
    assert as_constructed(held, ["['changed']"]) == wanted


@pytest.mark.parametrize(
    ("run", "wanted"),
    [
        (lambda x, out: out.copy_(x * 2), True),
        (lambda x, out: out.add_(x), False),
        (lambda x, out: out[1:].copy_(x[1:]), False),
    ],
    ids=["written", "read", "written in part"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_an_input_that_is_only_written_is_room_for_an_output(
    run: Callable[..., Any], wanted: bool, dtype: torch.dtype
) -> None:
    made = InputSet((torch.arange(4).to(dtype), torch.zeros(4, dtype=dtype)))
    assert overwritten(oracle(run, 1), made, 5, 1) is wanted
    assert overwritten(oracle(run), made, 5, 1) is False


def test_who_ignores_an_input_is_as_far_off_as_its_change_matters() -> None:
    def run(x: torch.Tensor, mask: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x + mask, -1) * scale

    judge = oracle(run)
    drawn = {1: torch.tensor([0.0, 0.0, -1e9]), 2: torch.ones(3)}
    made = InputSet((torch.tensor([1.0, 2.0, 3.0]), drawn[1] * 8, drawn[2] * 8))
    answer = judge.answer(made.rebuilt(), 0)
    mask, scale = answers_ignoring(judge, made, 0, answer, drawn)
    assert [row["input"] for row in (mask, scale)] == [1, 2]
    errors = [max(bin[2] for bin in row["leaves"][0]["bins"].values()) for row in (mask, scale)]
    assert errors[0] == 0
    assert errors[1] > 1


@pytest.mark.parametrize(
    ("run", "wanted"),
    [
        (lambda x: torch.isfinite(x).all(), ["out"]),
        (lambda x: (x * 2, torch.isnan(x).sum(), torch.arange(4)), ["out[1]"]),
        (lambda x: x.argmax(), []),
        (lambda x: x.relu(), []),
    ],
    ids=["flag", "count", "varies", "floats"],
)
def test_what_would_tell_of_nan_and_never_does_is_named(run: Callable[..., Any], wanted: list[str]) -> None:
    draws = [InputSet((torch.randn(64, generator=torch.Generator().manual_seed(n)),)) for n in (1, 2)]
    assert never_raised(oracle(run), (draws[0], draws[1]), 5) == wanted
