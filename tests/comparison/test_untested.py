"""Inputs and state that are the same every time."""

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from trackside.comparison.oracle import Oracle
from trackside.comparison.sets import InputSet
from trackside.comparison.untested import (
    answers_ignoring,
    as_constructed,
    never_raised,
    ordinary,
    overwritten,
)


def oracle(run: Callable[..., Any], *changed: int) -> Oracle:
    made = Oracle(types.SimpleNamespace(reference=None, call=lambda held, args: run(*args)), "cpu")
    made.changed_inputs = list(changed)
    return made


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (nn.LayerNorm(4), {"weight": "ones", "bias": "zeros"}),
        ({"moments": torch.zeros(3), "changed": torch.zeros(3)}, {"['moments']": "zeros"}),
        (torch.zeros(2, 3, dtype=torch.complex64).T, {"state": "zeros"}),
        (torch.ones(4).to(torch.float8_e4m3fn), {"state": "ones"}),
        (torch.zeros(4).expand(3, 4), {"state": "zeros"}),
        (torch.zeros(4, dtype=torch.int64), {"state": "zeros"}),
        (torch.ones(2, 2, dtype=torch.bool), {"state": "ones"}),
        (nn.Linear(4, 4), {}),
        ([torch.tensor([0.0, 1.0]), torch.full((3,), 2.0), torch.tensor([float("nan")] * 2)], {}),
        ([torch.zeros(()), torch.ones(1), torch.zeros(0), torch.tensor(0), 0.0], {}),
    ],
)
def test_state_counts_as_constructed_where_it_is_all_zero_or_all_one_and_no_call_changes_it(
    held: Any, wanted: dict[str, str]
) -> None:
    assert as_constructed(held, ["['changed']"]) == wanted


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (torch.eye(4), True),
        (torch.eye(6, 4), True),
        (torch.eye(3).expand(5, 3, 3).clone(), True),
        (nn.init.dirac_(torch.empty(6, 4, 3, 3)), True),
        (nn.init.dirac_(torch.empty(6, 1, 3), groups=6), True),
        (torch.eye(4).flip(0), False),
        (2 * torch.eye(4), False),
        (torch.eye(4, dtype=torch.int64), False),
        (torch.tensor([[1.0, 0.0]]), False),
        (torch.tril(torch.ones(4, 4)), False),
    ],
)
def test_a_product_or_convolution_that_changes_nothing_counts_as_an_identity(
    held: torch.Tensor, wanted: bool
) -> None:
    assert as_constructed([held], []) == ({"[0]": "identity"} if wanted else {})
    assert as_constructed([held], ["[0]"]) == {}


def drawn(seed: int = 1, count: int = 2) -> torch.Tensor:
    return torch.randn(4, count, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("changed", [[], ["a", "c"]], ids=["left alone", "learnt"])
def test_parameters_that_hold_the_same_bits_are_copies_whether_calls_change_them_or_not(
    changed: list[str],
) -> None:
    held = nn.ParameterDict({"a": drawn(), "b": drawn(2), "c": drawn()})
    assert as_constructed(held, changed) == {"a": "copies", "c": "copies"}


@pytest.mark.parametrize(
    "pair",
    [
        (nn.Parameter(drawn()), nn.Parameter(drawn(2))),
        (nn.Parameter(drawn()), nn.Parameter(drawn().double())),
        (nn.Parameter(torch.full((4,), 0.1)), nn.Parameter(torch.full((4,), 0.1))),
        (nn.Parameter(torch.tril(torch.ones(4, 4))), nn.Parameter(torch.tril(torch.ones(4, 4)))),
        (torch.arange(4), torch.arange(4)),
    ],
    ids=["drawn apart", "in another type", "constant", "masks", "places"],
)
def test_what_differs_or_need_not_differ_is_no_copy(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert as_constructed(list(pair), [], lambda: [drawn(8), drawn(9)]) == {}


def test_two_names_for_one_tensor_are_no_copies() -> None:
    weight = drawn()
    tied = [nn.Parameter(weight), nn.Parameter(weight)]
    assert as_constructed(tied, []) == {}
    assert set(as_constructed([*tied, nn.Parameter(weight.clone())], [])) == {"[0]", "[1]", "[2]"}


def test_a_table_that_no_seed_changes_may_be_held_by_each_layer() -> None:
    def made(seed: int) -> list[torch.Tensor]:
        return [drawn(), drawn(), drawn(seed), drawn(seed)]

    assert as_constructed(made(5), [], lambda: made(6)) == {"[2]": "copies", "[3]": "copies"}
    assert as_constructed(made(5), []) == {}


def test_where_no_other_seed_is_taken_copies_may_be_anything() -> None:
    def refuses() -> Any:
        raise ValueError("seed")

    assert set(as_constructed([drawn(), drawn()], [], refuses)) == {"[0]", "[1]"}


def test_integers_of_one_byte_may_be_weights_and_are_copies_too() -> None:
    codes = torch.tensor([1, 2, 3], dtype=torch.int8)
    wanted = {"[0]": "copies", "[1]": "copies"}
    assert as_constructed([codes, codes.clone()], [], lambda: [drawn(), drawn()]) == wanted


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


def test_parameters_and_what_is_drawn_are_ordinary_state_the_largest_first() -> None:
    held = {
        "drawn": torch.randn(3),
        "layer": nn.Linear(4, 2),
        "changed": torch.randn(9),
        "one": nn.Parameter(torch.ones(())),
    }
    again = {"drawn": torch.randn(3), "layer": nn.Linear(4, 2), "changed": torch.randn(9)}
    wanted = ["['layer'].weight", "['drawn']", "['layer'].bias", "['one']"]
    assert ordinary(held, ["['changed']"], lambda: again) == wanted


def test_tables_masks_integers_and_expanded_state_are_not_ordinary() -> None:
    held = {
        "table": torch.arange(4.0),
        "mask": torch.tensor([0.0, 1.0, 0.0, 1.0]),
        "places": torch.randint(0, 100, (4,)),
        "expanded": torch.randn(1, 4).expand(3, 4),
    }
    again = {
        **held,
        "mask": held["mask"].flip(0),
        "places": held["places"] + 1,
        "expanded": torch.randn(3, 4),
    }
    assert ordinary(held, [], lambda: again) == []


def test_where_another_seed_cannot_be_asked_parameters_alone_are_ordinary() -> None:
    def refuse() -> Any:
        raise ValueError("this seed is not known")

    assert ordinary({"w": nn.Parameter(torch.randn(3)), "drawn": torch.randn(3)}, [], refuse) == ["['w']"]
