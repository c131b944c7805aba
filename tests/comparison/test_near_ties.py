"""The oracle beside the inputs: what it is asked, and what becomes of what it cannot answer."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from trackside.comparison import near_ties
from trackside.comparison.matching import Beside
from trackside.comparison.oracle import Oracle


def beside(call: Any, *inputs: torch.Tensor, precision: torch.dtype | None = torch.float64) -> Beside:
    oracle = Oracle(types.SimpleNamespace(call=lambda state, args: call(*args), reference=None), "cpu")
    oracle.use_precision(precision)
    made: Any = types.SimpleNamespace(tensors=list(inputs), rebuilt=lambda tensors=inputs: tuple(tensors))
    wanted = oracle.answer(inputs, 0)["out"]
    return near_ties.beside(oracle, "out", wanted, made, 0, ())


def test_what_hardly_moves_turns_exact_ties_only() -> None:
    x = torch.tensor([1.0, 1.0 + 2.0**-23] * 100)
    drawn = beside(lambda x: x > 1, x)
    assert drawn.hardly is not None
    hardly, moved = drawn.hardly(), drawn.moved(4.0)
    assert 20 < int(hardly[::2].sum()) < 80
    assert bool(hardly[1::2].all())
    assert not bool(moved[1::2].all())


@pytest.mark.parametrize(
    ("dtype", "precision", "tells"),
    [
        (torch.float32, torch.float64, True),
        (torch.bfloat16, torch.float32, True),
        (torch.float64, torch.float64, False),
        (torch.float32, None, False),
    ],
)
def test_exact_ties_are_told_where_the_oracle_is_finer_than_the_inputs(
    dtype: torch.dtype, precision: torch.dtype | None, tells: bool
) -> None:
    drawn = beside(lambda x: x > 1, torch.ones(8).to(dtype), precision=precision)
    assert (drawn.hardly is not None) == tells
    assert drawn.moved(1.0) is not None


def test_what_is_computed_from_integers_is_rounded_otherwise_and_exact_ties_stay() -> None:
    pixels = torch.arange(1000)
    # Half a number for every tenth, but in no binary arithmetic; for every other one, in all.
    drawn = beside(lambda x: torch.cat([(x * 0.7 + 0.1).round(), (x / 2).round()]), pixels)
    assert drawn.hardly is not None
    wanted = drawn.hardly()
    turned = torch.stack([drawn.moved(1.0) != wanted for _ in range(16)]).any(0)
    assert 0 < int(turned[:1000].sum()) <= 100
    assert not bool(turned[1000:].any())
    assert drawn.as_run is not None
    exact = torch.stack([drawn.as_run() != wanted for _ in range(16)]).any(0)
    assert bool(exact[1000:].any())


def test_16_bit_values_are_moved_by_fewer_of_their_larger_steps() -> None:
    wide, narrow = (beside(lambda x: x > 1, torch.ones(8).to(d)) for d in (torch.float32, torch.float16))
    assert max(wide.ulps) == 16
    assert max(narrow.ulps) == 4
    assert narrow.widest == wide.widest / 2**13


def test_a_baseline_that_refuses_moved_inputs_gives_nothing() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        if not bool((x == x.round()).all()):
            raise ValueError("whole numbers only")
        return x > 0

    assert beside(call, torch.ones(8)).moved(1.0) is None


def test_memory_that_runs_out_is_no_matter_of_ties() -> None:
    calls = []

    def call(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise MemoryError
        return x > 0

    with pytest.raises(MemoryError):
        beside(call, torch.ones(8)).moved(1.0)


def test_an_output_of_another_shape_gives_nothing() -> None:
    x = torch.ones(64)
    assert beside(lambda x: torch.nonzero(x > 1), x).moved(1.0) is None


def test_a_slow_oracle_is_asked_no_more_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(near_ties.time, "monotonic", lambda: now[0])
    drawn = beside(lambda x: x > 1, torch.ones(8))
    assert drawn.moved(1.0) is not None
    now[0] = 1e4
    assert drawn.moved(1.0) is None


@pytest.mark.parametrize("largest", [True, False])
def test_a_place_follows_the_extreme_and_a_count_does_not(largest: bool) -> None:
    x = torch.relu(torch.randn(64, generator=torch.Generator().manual_seed(2)))
    find = torch.argmax if largest else torch.argmin
    assert int(beside(lambda x: find(x), x).at_extreme(x, 40, largest)) == 40
    assert int(beside(lambda x: (x > 0).sum(), x).at_extreme(x, 40, largest)) != 40
