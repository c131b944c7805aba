"""A state with other values for a while: what the oracle answers with it, and that all of it comes back."""

import types
from collections.abc import Callable
from typing import Any

import torch

from trackside.comparison.bent_state import BentState
from trackside.comparison.oracle import Oracle
from trackside.comparison.sets import InputSet

X = InputSet((torch.tensor([1.0, 2.0, 3.0]),))


def oracle(held: Any, run: Callable[..., Any]) -> Oracle:
    made = Oracle(types.SimpleNamespace(reference=None, call=lambda state, args: run(state, *args)), "cpu")
    made.set_state(held)
    return made


def scaled(held: Any, x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = x * held["scale"] + held["shift"]
    return out


def test_the_oracle_computes_with_the_bent_state_and_after_that_with_every_bit_of_the_old_one() -> None:
    held = {"scale": torch.ones(3), "shift": torch.tensor([0.0, -0.0, 0.0])}
    judge = oracle(held, scaled)
    before = judge.answer(X.rebuilt(), 0)["out"]
    bent = BentState(judge, held, {"['scale']": "ones", "['shift']": "zeros"}, 5, True)
    expected = X.tensors[0].double() * held["scale"].double() + held["shift"].double()
    assert torch.equal(judge.answer(X.rebuilt(), 0)["out"], expected)
    bent.restore()
    assert held["shift"].signbit().tolist() == [False, True, False]
    assert torch.equal(judge.answer(X.rebuilt(), 0)["out"], before)


def test_a_leaf_matters_where_the_answer_differs_with_it_alone_as_it_was() -> None:
    held = {"scale": torch.ones(3), "shift": torch.zeros(3), "unread": torch.zeros(3)}
    judge = oracle(held, scaled)
    kinds = {"['scale']": "ones", "['shift']": "zeros", "['unread']": "zeros"}
    bent = BentState(judge, held, kinds, 5, True)
    answer = judge.answer(X.rebuilt(), 0)
    found = bent.ignoring(X, 0, answer, 60.0)
    off = {
        path: max(b[2] for b in row["leaves"][0]["bins"].values()) for row in found for path in row["state"]
    }
    assert off["['scale']"] > 0.05
    assert off["['shift']"] > 0.05
    assert off["['unread']"] == 0
    assert torch.equal(judge.answer(X.rebuilt(), 0)["out"], answer["out"])


def test_leaves_for_which_there_is_no_time_are_looked_at_together() -> None:
    held = {"scale": torch.ones(3), "shift": torch.zeros(3)}
    judge = oracle(held, scaled)
    bent = BentState(judge, held, {"['scale']": "ones", "['shift']": "zeros"}, 5, True)
    (row,) = bent.ignoring(X, 0, judge.answer(X.rebuilt(), 0), -1.0)
    assert row["state"] == ["['scale']", "['shift']"]
