"""Nested values as leaves and back."""

import collections
import math
from typing import Any

import pytest
import torch

from trackside.workload import tree


def test_leaves_of_nested_containers_carry_their_path() -> None:
    x, y = torch.zeros(2), torch.ones(3)
    found = tree.flatten({"a": [x, (y, 3)], "b": {1: None}}, "out")
    assert [path for path, _ in found] == ["out['a'][0]", "out['a'][1][0]", "out['a'][1][1]", "out['b'][1]"]
    assert found[0][1] is x
    assert found[1][1] is y


def test_named_tuples_are_nested_and_other_tuple_subclasses_are_leaves() -> None:
    point = collections.namedtuple("point", "x y")
    assert [p for p, _ in tree.flatten(point(1, 2), "out")] == ["out[0]", "out[1]"]

    class Sly(tuple):
        def __iter__(self):
            return iter(())

    assert [p for p, _ in tree.flatten(Sly((1, 2)), "out")] == ["out"]


def test_a_dict_subclass_cannot_answer_for_its_contents() -> None:
    class Sly(dict):
        def items(self):
            return [("forged", 1)]

    assert tree.flatten(Sly(real=2)) == [("['real']", 2)]


def test_a_list_that_holds_itself_ends_in_an_error_not_a_hang() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(RecursionError):
        tree.flatten(loop)


@pytest.mark.parametrize(
    ("make", "span"),
    [
        (lambda: torch.zeros(3, 4), 48),
        (lambda: torch.zeros(3, 4).t(), 48),
        (lambda: torch.zeros(3, 4)[:, ::2], 44),
        (lambda: torch.zeros(4).expand(3, 4), 16),
        (lambda: torch.zeros(0, 4), 0),
        (lambda: torch.zeros(()), 4),
        (lambda: torch.zeros(5, dtype=torch.complex128), 80),
    ],
)
def test_span_is_what_a_raw_copy_must_take(make, span: int) -> None:
    facts = tree.facts_of("out", make())
    assert facts["kind"] == "tensor"
    assert facts["span"] == span


def test_facts_name_dtype_shape_stride_and_device() -> None:
    facts = tree.facts_of("out", torch.zeros(2, 3, dtype=torch.bfloat16).t())
    assert (facts["dtype"], facts["shape"], facts["stride"], facts["device"]) == (
        "bfloat16",
        [3, 2],
        [1, 3],
        "cpu",
    )


def test_conjugate_and_negative_views_are_seen() -> None:
    z = torch.randn(3, dtype=torch.complex64)
    assert tree.facts_of("out", z.conj())["conj"]
    assert tree.facts_of("out", z.conj().imag)["neg"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (torch.zeros(2, device="meta"), "tensor on the meta device"),
        (torch.eye(2).to_sparse(), "tensor with layout torch.sparse_coo"),
        (iter([1]), "builtins.list_iterator"),
        (True, "value"),
        (None, "value"),
    ],
)
def test_what_is_no_readable_tensor_is_named(value: object, kind: str) -> None:
    assert tree.facts_of("out", value)["kind"] == kind


def test_a_tensor_subclass_is_not_taken_for_a_tensor() -> None:
    class Lazy(torch.Tensor):
        pass

    kind = tree.facts_of("out", torch.zeros(2).as_subclass(Lazy))["kind"]
    assert kind.endswith("Lazy")


def test_an_int_subclass_is_not_taken_for_a_plain_value() -> None:
    class Sly(int):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    assert tree.facts_of("out", Sly(3))["kind"].endswith("Sly")


def test_facts_do_not_listen_to_methods_replaced_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "size", lambda self: (7, 7), raising=False)
    monkeypatch.setattr(torch.Tensor, "stride", lambda self: (0, 0), raising=False)
    monkeypatch.setattr(torch.Tensor, "dtype", torch.float64, raising=False)
    facts = tree.facts_of("out", torch.zeros(2, 3))
    assert (facts["shape"], facts["stride"], facts["dtype"]) == ([2, 3], [3, 1], "float32")


@pytest.mark.parametrize("value", [0.1, -0.0, math.inf, math.pi, 5e-324])
def test_floats_survive_json_exactly(value: float) -> None:
    back = tree.decode_value(tree.describe_value(value))
    assert math.copysign(1, back) == math.copysign(1, value)
    assert back == value


def test_a_value_is_rebuilt_from_its_specification() -> None:
    x, y = torch.zeros(2), torch.ones(3)
    value = ({"a": [x, 1.5], 2: (y, None, "s")}, True)
    tensors: list[torch.Tensor] = []
    spec = tree.specify(value, tensors)
    back = tree.build(spec, lambda i: tensors[i])
    assert back[0]["a"][0] is x
    assert back[0][2][0] is y
    assert (back[0]["a"][1], back[0][2][1:], back[1]) == (1.5, (None, "s"), True)
    assert isinstance(back[0]["a"], list)


@pytest.mark.parametrize("value", [torch.float32, torch.device("cpu"), object(), b"bytes"])
def test_inputs_that_cannot_cross_a_process_are_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        tree.specify((value,), [])


def test_a_metaclass_has_no_say_in_what_the_leaves_are() -> None:
    asked: list[str] = []

    class Nosy(type):
        def __getattr__(cls, name: str) -> Any:
            asked.append(name)
            raise AttributeError(name)

    class Sly(tuple[Any, ...], metaclass=Nosy): ...

    value = Sly((1, 2))
    assert tree.flatten(value, "out") == [("out", value)]
    assert asked == []


def test_neither_keys_nor_classes_of_an_output_are_asked() -> None:
    asked: list[str] = []

    class Nosy(type):
        def __eq__(cls, other: object) -> bool:
            asked.append("==")
            return other is list

        __hash__ = type.__hash__

        def __getattribute__(cls, name: str) -> Any:
            asked.append(name)
            return super().__getattribute__(name)

    class Word(str):
        __hash__ = str.__hash__

        def __repr__(self) -> str:
            asked.append("repr")
            return "'a']['b'"

        def __eq__(self, other: object) -> bool:
            asked.append("key ==")
            return True

    class Many(metaclass=Nosy):
        def __iter__(self) -> Any:
            return iter([1.0, 2.0])

    fields = type("Fields", (tuple,), {Word("_fields"): ("a",)})
    value = {Word("x"): 1, "many": Many(), "fields": fields((1,))}
    asked.clear()
    found = tree.flatten(value, "out")
    facts = [tree.facts_of(*leaf) for leaf in found]
    assert asked == []
    assert [path for path, _ in found] == [
        f"out[<{__name__}.{Word.__qualname__} 0>]",
        "out['many']",
        "out['fields']",
    ]
    assert facts[1]["kind"].endswith("Many")
    assert facts[2]["kind"].endswith("Fields")


def test_a_class_put_in_place_of_torch_s_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sly(torch.nn.Parameter):
        pass

    sly = torch.Tensor._make_subclass(Sly, torch.zeros(2))
    monkeypatch.setattr(torch.nn, "Parameter", Sly)
    assert tree.facts_of("out", sly)["kind"].endswith("Sly")


def test_leaves_say_what_containers_they_lie_in() -> None:
    point = collections.namedtuple("point", "x y")
    structseq = torch.zeros(2, 3).max(dim=1)
    value = {"a": [1, (2,)], "b": point(3, {}), "c": structseq, 0: ()}
    assert [(path, within) for path, _, within in tree.leaves(value)] == [
        ("['a'][0]", ("dict", "sequence")),
        ("['a'][1][0]", ("dict", "sequence", "sequence")),
        ("['b'][0]", ("dict", "named tuple (x, y)")),
        ("['b'][1]", ("dict", "named tuple (x, y)")),
        ("['c'][0]", ("dict", "sequence")),
        ("['c'][1]", ("dict", "sequence")),
        ("[0]", ("dict",)),
    ]
    values = dict(tree.flatten(value))
    assert (values["['b'][1]"], values["[0]"]) == ("an empty dict", "an empty sequence")


def test_a_nested_dict_and_a_flat_one_never_share_a_path() -> None:
    nested = tree.flatten({"a": {"b": 1}})
    assert nested != tree.flatten({"a']['b": 1})
    assert tree.flatten({1: 0}) != tree.flatten({"1": 0})
