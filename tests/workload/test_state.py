"""Tensors inside a state, found by path and put back bit for bit."""

import array
import collections
import math
import types
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from trackside.workload import state
from trackside.workload.digest import digest


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


def test_arrays_that_torch_has_no_view_of_are_looked_at_and_put_back() -> None:
    data = np.arange(4.0)
    big_endian = np.arange(3, dtype=">i4")
    fixed = np.arange(2)
    fixed.flags.writeable = False
    held = {
        "backwards": data[::-1],
        "text": np.array(["a", "b"]),
        "long": np.zeros(2, dtype=np.longdouble),
        "big": big_endian,
        "fixed": fixed,
        "bytes": bytearray(b"ab"),
        "array": array.array("d", [1.0]),
    }
    before = state.leaves(held)
    assert set(before) == {f"['{name}']" for name in held}
    assert before["['backwards']"].tolist() == [3.0, 2.0, 1.0, 0.0]  # type: ignore[union-attr]
    assert before["['big']"].tolist() == [0, 1, 2]  # type: ignore[union-attr]
    assert state.unseen(held) == {}
    snapshot = state.Snapshot(held)
    data += 1
    held["text"][0] = "c"
    held["long"] += 1  # type: ignore[operator]
    big_endian += 1
    held["bytes"].extend(b"cd")
    held["array"][0] = 2.0
    now = state.leaves(held)
    changed = {path for path in before if digest(now[path]) != digest(before[path])}
    assert changed == set(before) - {"['fixed']"}
    snapshot.restore()
    after = state.leaves(held)
    assert all(digest(after[path]) == digest(before[path]) for path in before)


def test_packed_tensors_are_looked_at_by_their_parts() -> None:
    held = [torch.eye(3).to_sparse_coo(), torch.ones(2, 2).to_mkldnn()]
    assert set(state.leaves(held)) == {"[0].indices", "[0].values", "[1]"}
    snapshot = state.Snapshot(held)
    held[0]._values().mul_(2)
    snapshot.restore()
    assert torch.equal(held[0].to_dense(), torch.eye(3))


def test_what_cannot_be_looked_at_is_named() -> None:
    class Lazy(torch.Tensor):
        pass

    class Pair(torch.Tensor):
        pass

    pair = torch.zeros(1).as_subclass(Pair)
    pair.scale = torch.ones(1)  # type: ignore[attr-defined]
    held = {
        "lazy": torch.zeros(2).as_subclass(Lazy),
        "pair": pair,
        "objects": np.array([object()]),
        "set": {("a", 1)},
        "words": {"a"},
        "numbers": {3, 1},
    }
    assert set(state.unseen(held)) == {"['lazy']", "['objects']", "['set']"}
    assert set(state.leaves(held)) == {"['pair'].scale", "['numbers']{0}", "['numbers']{1}"}


def test_a_table_of_numbers_is_one_leaf_with_all_of_them() -> None:
    found = state.leaves({"a": list(range(100_000)), "b": {str(i): i / 2 for i in range(5000)}})
    assert set(found) == {"['a'][:]", "['b'][:]"}
    whole, halves = found.values()
    assert isinstance(whole, torch.Tensor)
    assert isinstance(halves, torch.Tensor)
    assert (whole.dtype, whole.tolist()) == (torch.int64, list(range(100_000)))
    assert (halves.dtype, halves[-1].item()) == (torch.float64, 2499.5)
    assert state.walk({"a": list(range(100_000))}) == {}


def test_numbers_beyond_the_most_are_one_leaf_together() -> None:
    held = [[i, i] for i in range(6000)]
    before = state.leaves(held)
    assert len(before) == 10_001
    held[-1][-1] += 1
    after = state.leaves(held)
    assert [path for path in before if digest(before[path]) != digest(after[path])] == ["(further numbers)"]


def test_numbers_that_no_tensor_holds_exactly_do_not_stop_the_look() -> None:
    table = [2**70, -(10**400), *range(1000), 0.5]
    found = state.leaves(table)["[:]"]
    assert isinstance(found, torch.Tensor)
    assert (found.dtype, found[0].item(), found[1].item()) == (torch.float64, 2.0**70, -math.inf)


def test_the_state_s_own_classes_are_never_asked() -> None:
    asked: list[str] = []

    class Nosy(type):
        def __eq__(cls, other: object) -> bool:
            asked.append("class ==")
            return other is list

        __hash__ = type.__hash__

        def __getattribute__(cls, name: str) -> Any:
            if name not in ("__dict__", "__class__"):
                asked.append(f"class {name}")
            return super().__getattribute__(name)

    class Word(str):
        __hash__ = str.__hash__

        def __repr__(self) -> str:
            asked.append("repr")
            return "x"

        def __eq__(self, other: object) -> bool:
            asked.append("==")
            return str.__eq__(self, other)

    def deny(name: str) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            asked.append(name)
            return iter(())

        return method

    names = ("items", "values", "keys", "__iter__", "__len__", "get", "update", "clear", "extend", "copy")
    methods = {name: deny(name) for name in names}
    mapping = type("M", (dict,), methods)(a=torch.zeros(1))
    mapping[Word("b")] = 3
    sequence = type("L", (list,), methods)([torch.zeros(1), 2])
    thing = Nosy(
        "T", (), {**methods, "__dict__": property(deny("__dict__")), "__class__": property(deny("c"))}
    )()
    object.__setattr__(thing, "held", torch.zeros(1))

    class Net(torch.nn.Module):
        named_parameters = named_buffers = named_modules = parameters = modules = deny("named")
        _named_members = deny("members")

    net = Net()
    torch.nn.Module.register_parameter(net, "w", torch.nn.Parameter(torch.zeros(1)))
    net.__dict__[Word("_buffers")] = {}

    class Opt(torch.optim.SGD):
        zero_grad = deny("zero_grad")

    optimizer = Opt([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    held = [mapping, sequence, thing, net, optimizer]
    asked.clear()
    found = state.leaves(held)
    assert {"[0]['a']", "[1][0]", "[1][1]", "[2].held", "[3].w"} <= set(found)
    snapshot = state.Snapshot(held)
    list.append(sequence, 5)
    dict.__setitem__(mapping, "c", 5)
    with torch.no_grad():
        net.__dict__["_parameters"]["w"].add_(1)
    asked.clear()
    snapshot.restore()
    assert set(state.leaves(held)) == set(found)
    assert net.__dict__["_parameters"]["w"].item() == 0
    assert state.unseen(held) == {}
    assert asked == []


def test_a_tensor_given_another_class_ends_the_restoring() -> None:
    class Sly(torch.Tensor):
        pass

    held = [torch.zeros(1)]
    snapshot = state.Snapshot(held)
    held[0].__class__ = Sly
    with pytest.raises(TypeError, match="another class"):
        snapshot.restore()


def test_parameters_of_compiled_modules_are_found_by_their_names() -> None:
    inner = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    wanted = {*(n for n, _ in inner.named_parameters()), *(n for n, _ in inner.named_buffers())}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted, traced = torch.jit.script(inner), torch.jit.trace(inner, torch.zeros(3, 2))
    assert set(state.walk(scripted)) == wanted
    assert set(state.walk(traced)) == wanted
    snapshot = state.Snapshot(scripted)
    with torch.no_grad():
        inner[0].weight.add_(1)
    snapshot.restore()


def test_an_expanded_tensor_is_put_back_with_all_that_shows_it() -> None:
    bias = torch.arange(4.0)
    held = {
        "rows": bias.expand(3, 4),
        "cube": torch.ones(2, 1).expand(5, 2, 6),
        "one": torch.ones(1).expand(1),
    }
    snapshot = state.Snapshot(held)
    bias += 1
    held["cube"][:, 0].data.select(0, 0).select(0, 0).fill_(7)
    snapshot.restore()
    assert torch.equal(held["rows"], torch.arange(4.0).expand(3, 4))
    assert torch.equal(held["cube"], torch.ones(5, 2, 6))
    assert held["rows"].stride() == (0, 1)


def test_windows_that_overlap_are_put_back() -> None:
    windows = torch.arange(10.0).unfold(0, 3, 1)
    snapshot = state.Snapshot([windows])
    windows[0] += 5
    snapshot.restore()
    assert torch.equal(windows, torch.arange(10.0).unfold(0, 3, 1))


def test_zeros_without_memory_are_left_alone() -> None:
    held = {"zeros": torch._efficientzerotensor((3,)), "ones": torch.ones(3)}  # type: ignore[attr-defined]
    snapshot = state.Snapshot(held)
    held["ones"] += 1
    snapshot.restore()
    assert set(state.leaves(held)) == {"['ones']"}
    assert torch.equal(held["ones"], torch.ones(3))


def test_an_expanded_leaf_has_the_digest_of_its_values() -> None:
    rows = torch.arange(4.0).expand(3, 4)
    assert digest(rows, "key") == digest(rows.contiguous(), "key")


def test_generators_are_found_wherever_tensors_are_and_each_once() -> None:
    class Noise:
        def __init__(self) -> None:
            self.generator = torch.Generator()

    module, noise, packed = torch.nn.Linear(1, 1), Noise(), torch.Generator()
    module.generator = noise.generator  # type: ignore[assignment]
    found = state.generators({"module": module, "noise": noise, "list": [(packed,)]})
    assert [id(one) for one in found] == [id(noise.generator), id(packed)]


def test_seeded_generators_repeat_and_draw_what_neither_another_nor_torch_s_default_does() -> None:
    def drawn() -> list[torch.Tensor]:
        torch.manual_seed(7)
        state.seed(held, 7)
        return [torch.rand(4), *(torch.rand(4, generator=one) for one in held)]

    held = [torch.Generator(), torch.Generator()]
    first, again = drawn(), drawn()
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert len({tuple(numbers.tolist()) for numbers in first}) == 3
