"""Tensors inside a state, found by path and put back bit for bit."""

import collections
import types

import numpy as np
import pytest
import torch

from trackside.workload import state


def test_parameters_and_buffers_of_a_module_are_found() -> None:
    module = torch.nn.BatchNorm1d(3)
    assert set(state.walk(module)) == {
        "weight",
        "bias",
        "running_mean",
        "running_var",
        "num_batches_tracked",
    }


def test_tensors_in_containers_and_attributes_are_found_once() -> None:
    x = torch.zeros(2)
    holder = types.SimpleNamespace(inner=types.SimpleNamespace(t=torch.ones(1)))
    found = state.walk({"a": [x, x], "b": holder})
    assert set(found) == {"['a'][0]", "['b'].inner.t"}


def test_gradients_are_part_of_the_state() -> None:
    x = torch.ones(2, requires_grad=True)
    x.sum().backward()
    assert set(state.walk([x])) == {"[0]", "[0].grad"}


def test_an_optimizer_s_moments_are_found() -> None:
    module = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    found = state.walk((module, optimizer))
    assert any("exp_avg" in path for path in found)


def test_a_state_that_holds_itself_ends() -> None:
    loop: dict[str, object] = {"t": torch.zeros(1)}
    loop["self"] = loop
    assert set(state.walk(loop)) == {"['t']"}


def step(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    module(torch.ones(4, 2)).square().sum().backward()
    optimizer.step()


def contents(value: object) -> dict[str, torch.Tensor]:
    return {path: t.detach().clone() for path, t in state.walk(value).items()}


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_training_step_is_undone_bit_for_bit(kind: type[torch.optim.Optimizer]) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = kind(module.parameters(), lr=0.1)
    held = (module, optimizer)
    before = contents(held)
    snapshot = state.Snapshot(held)
    step(module, optimizer)
    assert any(not torch.equal(before[p], t) for p, t in contents(held).items() if p in before)
    snapshot.restore()
    after = contents(held)
    assert set(after) == set(before)
    assert all(torch.equal(before[path], after[path]) for path in before)


def test_a_second_step_after_restoring_gives_the_first_one_s_result() -> None:
    torch.manual_seed(0)
    module = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    snapshot = state.Snapshot((module, optimizer))
    step(module, optimizer)
    first = contents(module)
    snapshot.restore()
    step(module, optimizer)
    assert all(torch.equal(first[path], t) for path, t in contents(module).items())


def test_an_optimizer_that_already_has_moments_is_restored_too() -> None:
    torch.manual_seed(0)
    module = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    step(module, optimizer)
    snapshot = state.Snapshot((module, optimizer))
    step(module, optimizer)
    first = contents((module, optimizer))
    snapshot.restore()
    step(module, optimizer)
    second = contents((module, optimizer))
    assert all(torch.equal(first[path], second[path]) for path in first)


def test_a_tensor_that_grew_is_put_back() -> None:
    held = {"cache": torch.zeros(2)}
    snapshot = state.Snapshot(held)
    held["cache"].data = torch.ones(5)
    snapshot.restore()
    assert torch.equal(held["cache"], torch.zeros(2))


def test_a_tensor_that_was_replaced_is_put_back() -> None:
    held = {"cache": torch.zeros(2)}
    snapshot = state.Snapshot(held)
    held["cache"] = torch.ones(2)
    snapshot.restore()
    assert torch.equal(held["cache"], torch.zeros(2))


def test_a_tensor_that_was_added_is_taken_away() -> None:
    held: dict[str, torch.Tensor] = {}
    snapshot = state.Snapshot(held)
    held["memo"] = torch.ones(2)
    snapshot.restore()
    assert not state.walk(held)


def test_plain_attributes_numbers_slots_and_arrays_are_part_of_the_state() -> None:
    class Slotted:
        __slots__ = ("held",)

        def __init__(self) -> None:
            self.held = torch.ones(1)

        def __call__(self) -> None: ...

    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    module[0].cache = torch.zeros(3)  # type: ignore[assignment]
    held = {"m": module, "s": Slotted(), "a": np.zeros(4), "d": collections.deque([1.5]), "n": 7}
    found = state.leaves(held)
    assert {"['m'].0.cache", "['s'].held", "['a']", "['d'][0]", "['n']"} <= set(found)
    assert (found["['d'][0]"], found["['n']"]) == (1.5, 7)
    snapshot = state.Snapshot(held)
    module[0].cache = torch.ones(3)  # type: ignore[assignment]
    held["s"].held = torch.zeros(2)  # type: ignore[attr-defined]
    held["a"] += 1  # type: ignore[operator]
    held["d"].append(2.5)  # type: ignore[attr-defined]
    held["n"] = 8
    snapshot.restore()
    assert torch.equal(module[0].cache, torch.zeros(3))  # type: ignore[arg-type]
    assert torch.equal(held["s"].held, torch.ones(1))  # type: ignore[attr-defined]
    assert held["a"].sum() == 0  # type: ignore[attr-defined]
    assert list(held["d"]) == [1.5]  # type: ignore[call-overload]
    assert held["n"] == 7


def test_what_has_no_common_form_is_left_out() -> None:
    backwards = np.arange(4.0)[::-1]
    sparse = torch.eye(3).to_sparse_coo()
    assert state.leaves([backwards, sparse, np.array(["a"]), np.zeros(2, dtype=np.longdouble)]) == {}


def test_a_table_of_numbers_is_not_followed_to_its_end() -> None:
    assert len(state.leaves(list(range(100_000)))) == 1000
