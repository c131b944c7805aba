"""The oracle: the baseline's own code in float64, on copies of its own."""

import types
from typing import Any

import pytest
import torch

from trackside.comparison.oracle import HALF_ULP, Oracle


def workload(call: Any, reference: Any = None) -> Any:
    return types.SimpleNamespace(call=call, reference=reference)


def answer(call: Any, *inputs: Any, state: Any = None, seed: int = 0) -> dict[str, Any]:
    oracle = Oracle(workload(call), "cpu")
    oracle.set_state(state)
    return oracle.answer(inputs, seed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_low_precision_code_is_computed_in_float64(dtype: torch.dtype) -> None:
    x = torch.randn(64, 64).to(dtype)
    found = answer(lambda state, args: args[0] @ args[0], x)["out"]
    assert found.dtype == torch.float64
    assert torch.allclose(found, x.double() @ x.double(), rtol=1e-12, atol=1e-12)


def test_casts_inside_the_code_do_not_narrow_the_oracle() -> None:
    x = torch.full((4,), 1.0)

    def call(state: Any, args: Any) -> Any:
        half = (args[0] / 3).half()
        return half.float() + torch.zeros(4, dtype=torch.bfloat16) + torch.tensor(1 / 7)

    found = answer(call, x)["out"]
    assert torch.allclose(found, torch.full((4,), 1 / 3 + 1 / 7, dtype=torch.float64), rtol=1e-7)
    assert float((found - found.float().double()).abs().max()) > 0


def test_inputs_are_not_changed_by_code_that_works_in_place() -> None:
    x = torch.ones(3)
    answer(lambda state, args: args[0].mul_(2), x)
    assert torch.equal(x, torch.ones(3))


def test_inputs_that_the_baseline_changes_count_as_outputs() -> None:
    oracle = Oracle(workload(lambda state, args: args[0].mul_(2).sum()), "cpu")
    oracle.changed_inputs = [0]
    found = oracle.answer((torch.ones(3),), 0)
    assert torch.equal(found["in:0"], torch.full((3,), 2.0, dtype=torch.float64))


def test_state_that_the_baseline_changes_is_fresh_for_every_answer() -> None:
    def call(state: Any, args: Any) -> Any:
        state["total"].add_(args[0])
        return state["total"] * 1

    oracle = Oracle(workload(call), "cpu")
    oracle.set_state({"total": torch.zeros(2)})
    oracle.changed_state = ["['total']"]
    first = oracle.answer((torch.ones(2),), 0)
    second = oracle.answer((torch.ones(2),), 0)
    assert torch.equal(first["out"], second["out"])
    assert torch.equal(first["state:['total']"], torch.ones(2, dtype=torch.float64))


def test_gradients_are_answers_too() -> None:
    x = torch.randn(5, requires_grad=True)

    def call(state: Any, args: Any) -> Any:
        loss = (args[0] ** 3).sum()
        loss.backward()
        return loss

    found = answer(call, x)
    assert torch.allclose(found["in:0.grad"], 3 * x.detach().double() ** 2)
    assert x.grad is None


def test_the_reference_takes_the_place_of_run() -> None:
    oracle = Oracle(workload(lambda s, a: a[0] * 0, reference=lambda s, a: a[0] * 2), "cpu")
    assert float(oracle.answer((torch.ones(1),), 0)["out"]) == 2
    assert "reference" in oracle.kind


def test_random_operators_follow_the_seed() -> None:
    call = lambda state, args: torch.rand(4) + args[0]  # noqa: E731
    x = torch.zeros(4)
    assert torch.equal(answer(call, x, seed=7)["out"], answer(call, x, seed=7)["out"])
    assert not torch.equal(answer(call, x, seed=7)["out"], answer(call, x, seed=8)["out"])


def test_a_default_dtype_set_by_the_oracle_does_not_stay() -> None:
    before = torch.get_default_dtype()

    def fails(state: Any, args: Any) -> Any:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        answer(fails, torch.ones(1))
    assert torch.get_default_dtype() is before


def test_nested_outputs_have_paths() -> None:
    found = answer(lambda s, a: {"loss": a[0].sum(), "parts": (a[0], 3)}, torch.ones(2))
    assert set(found) == {"out['loss']", "out['parts'][0]", "out['parts'][1]"}
    assert found["out['parts'][1]"] == 3


def test_beside_the_inputs_each_float_moves_by_steps_of_its_own_type_and_integers_stay() -> None:
    g = torch.Generator().manual_seed(3)
    x, h, n = torch.ones(256), torch.ones(256, dtype=torch.bfloat16), torch.arange(256)
    oracle = Oracle(workload(lambda state, args: tuple(a * 1 for a in args)), "cpu")
    found = oracle.answer_beside((x, h, n), 0, (), lambda dtype: 2 * HALF_ULP[dtype], g)
    for path, ulp in (("out[0]", 2.0**-23), ("out[1]", 2.0**-7)):
        off = (found[path] - 1).abs()
        assert found[path].dtype == torch.float64
        assert 0.5 * ulp < float(off.max()) <= ulp
    assert torch.equal(found["out[2]"], n)


@pytest.mark.parametrize("precision", [torch.float64, torch.float32, None])
def test_without_float_inputs_the_state_is_moved_and_is_itself_again_afterwards(precision: Any) -> None:
    weight = torch.ones(64, dtype=torch.bfloat16)
    oracle = Oracle(workload(lambda state, args: state["w"][args[0]]), "cpu")
    oracle.set_state({"w": weight})
    oracle.use_precision(precision)
    g = torch.Generator().manual_seed(3)
    tokens = (torch.arange(64),)
    moved = oracle.answer_beside(tokens, 0, (), lambda dtype: 4 * HALF_ULP[dtype], g)["out"]
    assert moved.dtype == (precision or torch.bfloat16)
    assert 2.0**-8 < float((moved.double() - 1).abs().max()) <= 2.0**-6
    assert bool((oracle.answer(tokens, 0)["out"] == 1).all())
    assert bool((weight == 1).all())
