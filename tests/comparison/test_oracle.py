"""The oracle: the baseline's own code in float64, on copies of its own."""

import threading
import types
from typing import Any

import pytest
import torch

from trackside.comparison.oracle import Oracle, _sharing
from trackside.comparison.rerounding import HALF_ULP, Reround, settled_otherwise


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


@pytest.mark.parametrize("changed", [set(), {"['flat']"}])
def test_views_of_one_buffer_in_the_state_stay_views_of_one_buffer(changed: set[str]) -> None:
    flat = torch.arange(8.0)
    state = {
        "flat": flat,
        "first": flat[:4].view(2, 2),
        "last": torch.nn.Parameter(flat[4:]),
        "alone": flat.clone(),
    }

    def call(held: Any, args: Any) -> Any:
        with torch.no_grad():
            held["flat"].mul_(args[0])
        return held["first"] + held["last"][:2], held["alone"].clone()

    oracle = Oracle(workload(call), "cpu")
    oracle.changed_state = changed
    oracle.set_state(state)
    found = oracle.answer((torch.tensor(3.0),), 0)
    assert found["out[0]"].dtype == torch.float64
    assert found["out[0]"].tolist() == [[12.0, 18.0], [18.0, 24.0]]
    assert found["out[1]"].tolist() == list(range(8))
    assert flat.tolist() == list(range(8))


def test_tensors_without_memory_of_their_own_share_none() -> None:
    class Wrapping(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise NotImplementedError(func)

    def wrapping() -> torch.Tensor:
        made: torch.Tensor = torch.Tensor._make_wrapper_subclass(Wrapping, (4,), dtype=torch.bfloat16)  # type: ignore[attr-defined]
        return made

    packed = {"first": wrapping(), "second": wrapping()}
    assert _sharing(packed) == [["first"], ["second"]]


def test_state_that_cannot_be_copied_is_made_again_and_takes_the_values() -> None:
    def call(state: Any, args: Any) -> Any:
        with state["lock"]:
            state["total"].add_(args[0])
            return state["total"] * 1

    made = {"lock": threading.Lock(), "total": torch.full((2,), 3.0)}
    oracle = Oracle(workload(call), "cpu")
    oracle.set_state(made, lambda: {"lock": threading.Lock(), "total": torch.zeros(2)})
    oracle.changed_state = ["['total']"]
    for _ in range(2):
        found = oracle.answer((torch.ones(2),), 0)
        assert torch.equal(found["out"], torch.full((2,), 4.0, dtype=torch.float64))
    assert torch.equal(made["total"], torch.full((2,), 3.0))


def test_state_that_can_neither_be_copied_nor_made_again_alike_is_an_error() -> None:
    oracle = Oracle(workload(lambda state, args: args[0]), "cpu")
    oracle.set_state(
        {"lock": threading.Lock(), "total": torch.zeros(2)},
        lambda: {"lock": threading.Lock(), "total": torch.zeros(3)},
    )
    with pytest.raises(TypeError, match="cannot pickle"):
        oracle.answer((torch.ones(2),), 0)


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


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_inputs_are_moved_in_both_parts(dtype: torch.dtype) -> None:
    z = torch.full((256,), 1 + 2j, dtype=dtype).conj()
    oracle = Oracle(workload(lambda state, args: args[0] * 1), "cpu")
    g = torch.Generator().manual_seed(3)
    found = oracle.answer_beside((z,), 0, (), lambda dtype: 2 * HALF_ULP[dtype], g)["out"]
    assert found.dtype == torch.complex128
    for part, value in ((found.real, 1.0), (found.imag, -2.0)):
        off = (part / value - 1).abs()
        assert HALF_ULP[dtype] < float(off.max()) <= 3 * HALF_ULP[dtype]
    assert oracle.ulp((z,)) == 2 * HALF_ULP[dtype]


def test_complex_tensors_that_the_code_makes_are_as_wide_as_the_rest() -> None:
    def call(state: Any, args: Any) -> Any:
        return torch.zeros(8, dtype=torch.complex64).copy_(args[0] / 3)

    z = torch.randn(8, dtype=torch.complex64)
    found = answer(call, z)["out"]
    assert found.dtype == torch.complex128
    assert torch.allclose(found, z.to(torch.complex128) / 3, rtol=1e-14)


def rerounded(call: Any, *inputs: Any, times: float = 1, seed: int = 3) -> tuple[Any, Any]:
    oracle = Oracle(workload(call), "cpu")
    g = torch.Generator().manual_seed(seed)
    return oracle.answer(inputs, 0)["out"], oracle.answer_rerounded(inputs, 0, (), times, g)["out"]


@pytest.mark.parametrize("times", [1, 16])
def test_without_floats_what_is_computed_is_rounded_otherwise(times: float) -> None:
    n = torch.arange(1, 100_000)
    plain, moved = rerounded(lambda state, args: torch.sin(args[0].double()), n, times=times)
    off = float(((moved - plain) / plain).abs().max())
    assert times * 2.0**-53 < off <= times * 2.0**-51
    again = rerounded(lambda state, args: torch.sin(args[0].double()), n, times=times)[1]
    other = rerounded(lambda state, args: torch.sin(args[0].double()), n, times=times, seed=4)[1]
    assert torch.equal(moved, again)
    assert not torch.equal(moved, other)


def test_sums_that_cancel_move_by_the_rounding_of_their_terms() -> None:
    n = torch.randint(0, 100_000, (512, 256), generator=torch.Generator().manual_seed(1))
    plain, moved = rerounded(lambda state, args: torch.sin(args[0].double()).sum(dim=1), n)
    backwards = torch.sin(n.double()).flip(1).cumsum(1)[:, -1]
    error = float((backwards - plain).square().mean().sqrt())
    assert error / 4 < float((moved - plain).square().mean().sqrt()) < 8 * error


@pytest.mark.parametrize(
    "call",
    [
        lambda n: torch.floor(n.double() * 12345.0),
        lambda n: torch.round(n.double() * 0.5),
        lambda n: torch.floor(n.double() / 100),
        lambda n: (n.double() / 7).long().double(),
        lambda n: torch.sin(n.double()).clone() - torch.cat([torch.sin(n.double()), n.double()])[: n.numel()],
        lambda n: torch.sin(n.double()).abs() - torch.sin(-n.double()).abs(),
        lambda n: 2 * torch.sin(n.double()) - torch.sin(n.double()) / 0.5,
        lambda n: torch.cos(n.double()).argsort().double(),
    ],
)
def test_what_is_exact_in_every_arithmetic_is_not_moved(call: Any) -> None:
    plain, moved = rerounded(lambda state, args: call(args[0]), torch.arange(1, 10_000), times=16)
    assert torch.equal(plain, moved)


def test_in_place_operators_and_views_are_rounded_otherwise_too() -> None:
    def call(state: Any, args: Any) -> Any:
        held = torch.zeros(2, 64, dtype=torch.float64)
        first, second = held.unbind()
        first.add_(args[0].double().sin())
        second.copy_(args[0].double().cos()).mul_(1 / 3)
        torch.exp(second, out=second)
        return held.unsqueeze(-1).expand(2, 64, 3)

    plain, moved = rerounded(call, torch.arange(1, 65))
    for row in range(2):
        assert 0 < float((moved[row] - plain[row]).abs().max()) < 2.0**-50


def as_run(call: Any, *inputs: Any, times: float = 1, output: torch.dtype | None = None) -> tuple[Any, Any]:
    oracle = Oracle(workload(call), "cpu")
    g = torch.Generator().manual_seed(3)
    plain = oracle.answer_as_run(inputs, 0, ())["out"]
    return plain, oracle.answer_as_run(inputs, 0, (), times, g, output)["out"]


def relative(plain: torch.Tensor, moved: torch.Tensor) -> float:
    difference = moved.double() - plain.double()
    return float(difference.square().mean().sqrt() / plain.double().square().mean().sqrt())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_results_are_off_by_about_the_rounding_of_their_own_type(dtype: torch.dtype) -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(1)).to(dtype)
    plain, moved = as_run(lambda state, args: torch.sin(args[0]), x)
    assert moved.dtype == dtype
    assert 0.1 < relative(plain, moved) / torch.finfo(dtype).eps < 0.5


def test_float32_made_of_bfloat16_inputs_is_off_by_a_float32_s_rounding() -> None:
    x = torch.randn(256, 256, generator=torch.Generator().manual_seed(1)).bfloat16()
    plain, moved = as_run(lambda state, args: args[0].float() @ args[0].float(), x)
    assert 0 < relative(plain, moved) < 2.0**-21
    exact, same = as_run(lambda state, args: (args[0] > args[0].t()).float().mean(), x)
    assert float((exact - same).abs()) < 2.0**-22, "no comparison may turn"


def test_bfloat16_output_may_be_rounded_to_bfloat16_on_the_way() -> None:
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(1)).bfloat16()

    def call(state: Any, args: Any) -> Any:
        return torch.tanh(args[0].float() @ args[0].float()).bfloat16()

    strict, asked = as_run(call, x), as_run(call, x, output=torch.bfloat16)
    assert relative(*strict) < 2.0**-14 < 2.0**-10 < relative(*asked) < 2.0**-6


def test_doubles_from_float32_inputs_are_off_by_a_double_s_rounding() -> None:
    x = torch.randn(256, 256, generator=torch.Generator().manual_seed(1))
    plain, moved = as_run(lambda state, args: args[0].double() @ args[0].double(), x, output=torch.float64)
    assert 0 < relative(plain, moved) < 2.0**-49


def test_what_is_drawn_stays_as_it_was_drawn() -> None:
    plain, moved = as_run(lambda state, args: torch.rand(args[0].shape), torch.zeros(4096))
    assert torch.equal(plain, moved)
    computed, otherwise = as_run(lambda state, args: torch.rand(args[0].shape).sqrt(), torch.zeros(4096))
    assert not torch.equal(computed, otherwise)


def test_complex_results_of_integers_are_rounded_otherwise() -> None:
    plain, moved = rerounded(
        lambda s, a: torch.polar(torch.ones(64).double(), a[0].double()), torch.arange(64)
    )
    assert 0 < float((moved - plain).abs().max()) < 2.0**-51


@pytest.mark.parametrize(
    ("call", "widened"),
    [
        (lambda x: x.double().sum(-1).float(), True),
        (lambda x: x.sum(-1, dtype=torch.float64).float(), True),
        (lambda x: torch.zeros(8, 8, dtype=torch.float64).copy_(x).sum(-1), True),
        (lambda x: (x * torch.ones(8, dtype=torch.float64)).sum(-1), True),
        (lambda x: x.cumsum(-1), False),
        (lambda x: x.bfloat16().float().sum(-1), False),
        (lambda x: torch.arange(8, dtype=torch.float64).float() + x, False),
    ],
)
def test_who_goes_over_to_doubles_is_seen(call: Any, widened: bool) -> None:
    oracle = Oracle(workload(lambda state, args: call(args[0])), "cpu")
    g = torch.Generator().manual_seed(1)
    oracle.answer_as_run((torch.randn(8, 8, generator=g),), 0, (), 1, g)
    assert oracle.widened is widened


@pytest.mark.parametrize(
    ("call", "squared"),
    [
        (lambda x: x.std(-1), True),
        (lambda x: torch.fft.fft(x).abs(), True),
        (lambda x: torch.hypot(x, x), True),
        (lambda x: torch.linalg.vector_norm(x, dim=-1), True),
        (lambda x: (x / x.abs().amax()).square().sum().sqrt() * x.abs().amax(), False),
        (lambda x: x.abs().sum(-1), False),
    ],
)
def test_an_operator_that_squares_beyond_float32_is_seen(call: Any, squared: bool) -> None:
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
    for scale, seen in ((1.0, False), (2.0**100, squared)):
        oracle = Oracle(workload(lambda state, args: call(args[0])), "cpu")
        oracle.answer((scale * x,), 0)
        assert oracle.squared is seen


@pytest.mark.parametrize(
    ("call", "flat"),
    [
        (lambda x: torch.softmax(x, -1), 4),
        (lambda x: x.exp(), 2),
        (lambda x: x.clone().exp_(), 2),
        (torch.sigmoid, 4),
        (torch.tanh, 4),
        (lambda x: torch.log_softmax(x, -1), 0),
        (lambda x: x * 2.0**-200, 0),
    ],
)
def test_numbers_that_float32_can_no_longer_tell_apart_are_counted(call: Any, flat: int) -> None:
    x = torch.tensor([-300.0, -200.0, 0.0, 40.0, 300.0])
    oracle = Oracle(workload(lambda state, args: call(args[0])), "cpu")
    assert oracle.flattened((x,), 0) == flat
    assert oracle.flattened((x / 100,), 0) == 0


def test_masks_of_infinity_flatten_nothing() -> None:
    x = torch.tensor([-torch.inf, 0.0, 1.0])
    assert Oracle(workload(lambda state, args: torch.softmax(args[0], -1)), "cpu").flattened((x,), 0) == 0


@pytest.mark.parametrize(
    ("call", "overflows"),
    [
        (lambda x: torch.exp(-(x**2)), True),
        (lambda x: torch.exp(-(x * x).sum()), True),
        (lambda x: 1 / (1 + torch.exp(x)), False),
        (lambda x: (x * torch.inf).sigmoid(), False),
        (lambda x: torch.sigmoid(x.masked_fill(x > 0, torch.inf) * 2), False),
        (lambda x: torch.exp(-(x.double() ** 2)), False),
    ],
)
def test_products_too_large_for_their_type_are_seen(call: Any, overflows: bool) -> None:
    x = torch.linspace(-1.0, 1.0, 7)
    oracle = Oracle(workload(lambda state, args: call(args[0])), "cpu")
    assert oracle.overflows((2.0**100 * x,), 0) is overflows
    assert oracle.overflows((x,), 0) is False


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_of_large_scores_move_as_their_scores_are_rounded_and_no_more(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(4)
    scores = 200 * torch.randn(64, 32, generator=g)
    weights = torch.softmax(scores, -1).to(dtype)
    operator = torch.ops.aten._softmax.default
    moved = settled_otherwise(operator, (scores.to(dtype), -1, False), weights, Reround(23, 0, 7))
    off = ((moved - weights).double() / weights.double().clamp_min(1e-300)).abs()[weights > 1e-3]
    most = HALF_ULP[dtype] * float(scores.abs().max()) + 2 * HALF_ULP[dtype]
    assert 0.02 * most < float(off.max()) <= 1.01 * most
    assert torch.isfinite(moved).all()
    # Nothing else is one of them.
    assert settled_otherwise(torch.ops.aten.mul.Tensor, (scores, 2), weights, Reround(23, 0, 7)) is weights
    one = settled_otherwise(
        torch.ops.aten.tanh.default, (scores,), torch.ones(3, dtype=dtype), Reround(23, 0, 7)
    )
    assert (one < 1).all()
