"""The tensors and numbers inside a workload's state, found by path, saved and put back bit for bit.

State is what hangs together from what `setup` returned: parameters, buffers and plain attributes of modules,
moments of optimizers, entries of containers, attributes and slots of other objects. What only a closure or a
global variable holds is not found. The state's own classes have no say in what is found, nor does their code
run: it would do so between timed calls, with the next inputs in place.
"""

from __future__ import annotations

import array
import collections
import logging
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import is_
from typing import Any

import numpy as np
import torch

from trackside.workload import tree

__all__ = ["Snapshot", "generators", "leaves", "seed", "unseen", "walk"]

_MAX_DEPTH = 8
# By id: a class of classes could define what `==` and `hash` of its classes do.
_NUMBERS = frozenset(map(id, (bool, int, float)))
# A container of more numbers (a vocabulary, say) has one leaf for all of them.
_LARGE_TABLE = 1000
# Numbers beyond so many have one leaf together: each takes 100 bytes of a message.
_MOST_NUMBERS = 10_000
_REST = "(further numbers)"

_Torch: Any = torch
_Base = _Torch._C.TensorBase
_mkldnn = _Torch._mkldnn
_clone, _detach, _copy = torch.Tensor.clone, torch.Tensor.detach, torch.Tensor.copy_
_get_data, _set_data = _Base.data.__get__, _Base.data.__set__
_set_grad = _Base.grad.__set__
_layout, _is_zero = _Base.layout.__get__, _Base._is_zerotensor
_to_dense = torch.Tensor.to_dense
_from_numpy, _strided, _tensor = torch.from_numpy, torch.strided, torch.tensor
_int64, _float64, _no_grad = torch.int64, torch.float64, torch.no_grad
# Captured as well: a class of another's in their place would be asked what its subclasses are.
_Tensor, _Module, _Optimizer, _ndarray = torch.Tensor, torch.nn.Module, torch.optim.Optimizer, np.ndarray
_Generator, _manual_seed = torch.Generator, torch.Generator.manual_seed
_library: Any = torch._C
_ScriptModule = torch._C.ScriptModule
_deque, _array_of_numbers, _Slot = collections.deque, array.array, types.MemberDescriptorType
_class_dict = type.__dict__["__dict__"].__get__
_class_mro = type.__dict__["__mro__"].__get__

_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))
# Neither state themselves nor an owner of any.
_CLOSED = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    str,
    bytes,
    torch.dtype,
    torch.device,
    logging.Logger,
)
# Those that are met most, by id, since looking a class up in a tuple of twelve takes its time.
_EMPTY = frozenset(map(id, (type(None), *_CLOSED)))
_NOT_ENTERED = (np.ndarray, torch.Generator, *_CLOSED)
_NOT_REFILLED = (np.ndarray, torch.Generator, torch.optim.Optimizer, tuple, *_CLOSED)
_CONTAINERS = (dict, list, tuple, collections.deque, set, frozenset)
# What a packed tensor keeps its numbers in; all of it lies in the tensor's own memory.
_PARTS: dict[torch.layout, dict[str, Callable[[Any], torch.Tensor]]] = {
    torch.sparse_coo: {"indices": torch.Tensor._indices, "values": torch.Tensor._values},
    **{
        layout: {
            "crow_indices": torch.Tensor.crow_indices,
            "col_indices": torch.Tensor.col_indices,
            "values": torch.Tensor.values,
        }
        for layout in (torch.sparse_csr, torch.sparse_bsr)
    },
    **{
        layout: {
            "ccol_indices": torch.Tensor.ccol_indices,
            "row_indices": torch.Tensor.row_indices,
            "values": torch.Tensor.values,
        }
        for layout in (torch.sparse_csc, torch.sparse_bsc)
    },
}

Leaf = torch.Tensor | float


def walk(value: Any) -> dict[str, torch.Tensor]:
    """Every tensor reachable from `value`, numpy arrays among them as tensors on the same memory."""
    found: dict[str, torch.Tensor] = {}
    for path, item in _reached(value, "", set(), _MAX_DEPTH, numbers=False):
        kind = type(item)
        if tree.is_tensor(item):
            found.update(_tensors(path, item))
        elif issubclass(kind, _ndarray) or kind is bytearray or kind is _array_of_numbers:
            made, shared = _array(item)
            if made is not None and shared:
                found[path or "state"] = made
    return found


def generators(value: Any) -> list[torch.Generator]:
    """The random generators reachable from `value`, in the order in which they are found."""
    reached = _reached(value, "", set(), _MAX_DEPTH, numbers=False)
    return [item for _, item in reached if issubclass(type(item), _Generator)]


def seed(found: Iterable[torch.Generator], value: int) -> None:
    """Have each draw numbers of its own, by this seed: none that torch's default generator draws by it.

    Not as `setup` left them: calls would draw the same numbers then, and who kept those would be right.
    """
    for generator in found:
        value += 1
        _manual_seed(generator, value)


def leaves(value: Any) -> dict[str, Leaf]:
    """The tensors that `walk` finds, copies of arrays that torch has no view of, and every plain number."""
    found: dict[str, Leaf] = {}
    rest: list[float] = []
    single = 0
    for path, item in _reached(value, "", set(), _MAX_DEPTH):
        kind = type(item)
        if tree.is_tensor(item):
            found.update(_tensors(path, item))
            if _layout(item) is _mkldnn:
                found[path or "state"] = _to_dense(_detach(item))
        elif issubclass(kind, _ndarray) or kind is bytearray or kind is _array_of_numbers:
            made, _shared = _array(item)
            if made is not None:
                found[path or "state"] = made
        elif kind is _Table:
            found[f"{path}[:]"] = _numbers(item.numbers)
        elif id(kind) in _NUMBERS:
            if single < _MOST_NUMBERS:
                found[path or "state"] = item
                single += 1
            else:
                rest.append(item)
    if rest:
        found[_REST] = _numbers(rest)
    return found


def unseen(value: Any) -> dict[str, str]:
    """What is reachable and may hold numbers, but cannot be looked at, and as what."""
    found: dict[str, str] = {}
    for path, item in _reached(value, "", set(), _MAX_DEPTH):
        kind = type(item)
        if tree.is_tensor(item):
            layout = _layout(item)
            if not (layout is _strided or layout is _mkldnn or layout in _PARTS):
                found[path or "state"] = f"tensor with layout {layout}"
        elif issubclass(kind, _Tensor):
            if not any(tree.is_tensor(inner) for _, inner in _inside(item)):
                found[path or "state"] = f"{tree.facts_of('', item)['kind']}, no plain tensor"
        elif issubclass(kind, _ndarray):
            if _array(item)[0] is None:
                found[path or "state"] = "numpy array of objects"
        elif issubclass(kind, set | frozenset) and not all(
            id(type(entry)) in _NUMBERS or type(entry) is str or type(entry) is bytes
            for entry in _entries_of_set(item)
        ):
            found[path or "state"] = "set of other things than numbers"
    return found


def _tensors(path: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """A tensor with its gradient, or the parts of one that is packed."""
    layout = _layout(tensor)
    if layout is _strided:
        if _is_zero(tensor):
            # Autograd's zeros: they have no memory, and nobody can write to them.
            return
        yield path or "state", tensor
        held = tree.gradient(tensor)
        if tree.is_tensor(held) and _layout(held) is _strided:
            yield f"{path}.grad", held
    else:
        for name, part in _PARTS.get(layout, {}).items():
            yield f"{path}.{name}", part(_detach(tensor))


def _array(item: Any) -> tuple[torch.Tensor | None, bool]:
    """An array as a tensor, and whether that lies on the same memory; None where it holds Python objects."""
    if type(item) is bytearray or type(item) is _array_of_numbers:
        # Not on the same memory: an array that is looked at through another object cannot grow.
        return _tensor(np.frombuffer(bytes(memoryview(item)), dtype=np.uint8).copy()), False
    plain = _ndarray.view(item, _ndarray)
    if plain.dtype.hasobject:
        return None, False
    if plain.flags.writeable:
        try:
            return _from_numpy(plain), True
        except (TypeError, ValueError):
            pass
    # Torch has neither all of numpy's types nor strides below zero.
    kind = plain.dtype.kind
    if kind in "fc" and plain.dtype.itemsize > (8 if kind == "f" else 16):
        plain = plain.astype(np.complex128 if kind == "c" else np.float64)
    elif kind in "fciub":
        plain = plain.astype(plain.dtype.newbyteorder("="))
    else:
        plain = np.frombuffer(plain.tobytes(), dtype=np.uint8)
    return _tensor(np.array(plain, order="C")), False


def _numbers(values: list[float]) -> torch.Tensor:
    """Plain numbers as one tensor: of integers where all are, and these small enough."""
    if not any(type(value) is float for value in values):
        try:
            return _tensor(values, dtype=_int64)
        except (OverflowError, RuntimeError):
            pass
    return _tensor([_float(value) for value in values], dtype=_float64)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


class _Table:
    """Numbers of one container, taken together."""

    def __init__(self, numbers: list[float]) -> None:
        self.numbers = numbers


def _reached(
    value: Any, path: str, seen: set[int], depth: int, numbers: bool = True
) -> Iterator[tuple[str, Any]]:
    """Whatever can be reached, each object once; numbers anywhere, those of a large table as one."""
    kind = type(value)
    if id(kind) in _NUMBERS:
        if numbers:
            yield path, value
        return
    if id(kind) in _EMPTY or depth == 0 or id(value) in seen:
        return
    seen.add(id(value))
    yield path, value
    if tree.is_tensor(value):
        return
    inside = _inside(value, numbers)
    if numbers and issubclass(kind, _CONTAINERS):
        inside = list(inside)
        plain = [item for _, item in inside if id(type(item)) in _NUMBERS]
        if len(plain) > _LARGE_TABLE:
            yield path, _Table(plain)
            inside = [(name, item) for name, item in inside if id(type(item)) not in _NUMBERS]
    for name, item in inside:
        inner = path + name if name[0] in ".[{" else f"{path}.{name}" if path else name
        yield from _reached(item, inner, seen, depth - 1, numbers)


def _inside(value: Any, numbers: bool = True) -> Iterable[tuple[str, Any]]:
    """Name and value of what an object holds; without `numbers`, those in containers are left out."""
    kind = type(value)
    if tree.is_tensor(value) or issubclass(kind, _NOT_ENTERED):
        return
    if issubclass(kind, _Module):
        modules = _modules(value)
        for held in ("_parameters", "_buffers"):
            for prefix, own in modules:
                for name, item in _entries(own.get(held)):
                    yield prefix + name, item
        for prefix, own in modules:
            if own.get("_c") is None and "_actual_script_module" not in own:
                for name, item in own.items():
                    if name not in _OF_EVERY_MODULE and not issubclass(type(item), _Module):
                        yield prefix + name, item
    elif issubclass(kind, _Optimizer):
        own = _named(tree.attributes(value))
        kept = {id(key): item for key, item in _pairs(own.get("state"))}
        for i, parameter in enumerate(_parameters(own)):
            yield f".state[{i}]", kept.get(id(parameter), {})
    elif issubclass(kind, dict):
        for i, (key, item) in enumerate(_pairs(value)):
            if numbers or id(type(item)) not in _NUMBERS:
                yield f"[{tree.key_name(key, i)}]", item
    elif issubclass(kind, set | frozenset):
        plain = sorted(entry for entry in _entries_of_set(value) if id(type(entry)) in _NUMBERS)
        for i, item in enumerate(plain):
            yield f"{{{i}}}", item
    elif issubclass(kind, tuple | list | _deque):
        for i, item in enumerate(_items(value)):
            if numbers or id(type(item)) not in _NUMBERS:
                yield f"[{i}]", item
    else:
        for name, item in _named(tree.attributes(value)).items():
            yield f".{name}", item
        for name, _slot, item in _slots(value):
            yield f".{name}", item


def _modules(module: Any, prefix: str = "", seen: set[int] | None = None) -> list[tuple[str, dict[str, Any]]]:
    """A module and those below it, each once: path with a dot at its end, and attributes."""
    seen = set() if seen is None else seen
    if id(module) in seen or not issubclass(type(module), _Module):
        return []
    seen.add(id(module))
    own = _named(tree.attributes(module))
    scripted = own.get("_c")
    if type(scripted) is _ScriptModule:
        return _scripted(scripted, prefix)
    if "_actual_script_module" in own:
        return [
            (prefix, {"_actual_script_module": None}),
            *_modules(own["_actual_script_module"], prefix, seen),
        ]
    found = [(prefix, own)]
    for name, inner in _entries(own.get("_modules")):
        found += _modules(inner, f"{prefix}{name}.", seen)
    return found


def _scripted(module: Any, prefix: str) -> list[tuple[str, dict[str, Any]]]:
    """A compiled module's, which has no attributes in Python."""
    held = {
        "_c": module,
        "_parameters": dict(_library.ParameterDict(module).items()),
        "_buffers": dict(_library.BufferDict(module).items()),
    }
    found = [(prefix, held)]
    for name, inner in _library.ModuleDict(module).items():
        found += _scripted(inner, f"{prefix}{name}.")
    return found


def _parameters(optimizer: dict[str, Any]) -> Iterator[Any]:
    """An optimizer's parameters in the order of its groups."""
    for group in _items(optimizer.get("param_groups")):
        for name, held in _entries(group):
            if name == "params":
                yield from _items(held)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    return list(dict.items(value)) if issubclass(type(value), dict) else []


def _entries(value: Any) -> list[tuple[str, Any]]:
    """Entries of a dict, those whose keys are strings."""
    return [entry for entry in _pairs(value) if type(entry[0]) is str]


def _named(held: dict[str, Any]) -> dict[str, Any]:
    """The same entries in a dict of our own: looking one up there asks no key of another kind."""
    return {key: item for key, item in dict.items(held) if type(key) is str}


def _items(value: Any) -> list[Any]:
    for kind in (list, tuple, _deque):
        if issubclass(type(value), kind):
            return list(kind.__iter__(value))
    return []


def _entries_of_set(value: Any) -> list[Any]:
    kind: Any = set if issubclass(type(value), set) else frozenset
    return list(kind.__iter__(value))


def _slots(value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, descriptor and content of what an object keeps in slots."""
    for base in _class_mro(type(value)):
        names = _class_dict(base)
        if any(type(name) is str and name == "__slots__" for name in names):
            for name, slot in names.items():
                if type(name) is str and type(slot) is _Slot:
                    try:
                        yield name, slot, slot.__get__(value)
                    except AttributeError:
                        continue


def _refills(value: Any) -> Iterator[Callable[[], None]]:
    """What puts back an object's entries and attributes that `run` may reassign."""
    kind = type(value)
    if tree.is_tensor(value) or issubclass(kind, _NOT_REFILLED):
        return
    held: list[Any] = []
    if issubclass(kind, _Module):
        for module in _unscripted(value):
            attributes = tree.attributes(module)
            own = _named(attributes)
            held += [attributes, own.get("_parameters"), own.get("_buffers"), own.get("_modules")]
    elif issubclass(kind, dict | list | _deque | set):
        held = [value]
    elif kind is bytearray or kind is _array_of_numbers:
        return
    else:
        held = [tree.attributes(value)]
        if kept := [(slot, item) for _name, slot, item in _slots(value)]:
            yield partial(_reset_slots, value, kept)
    for container in held:
        if issubclass(type(container), dict):
            keys, values = list(dict.keys(container)), list(dict.values(container))
            yield partial(_refill_dict, container, keys, values)
        elif issubclass(type(container), set):
            yield partial(_refill_set, container, _entries_of_set(container))
        elif issubclass(type(container), list | _deque):
            yield partial(_refill, container, _items(container))


def _unscripted(module: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """A module and those below it whose attributes are kept in Python."""
    seen = set() if seen is None else seen
    if id(module) in seen or not issubclass(type(module), _Module):
        return
    seen.add(id(module))
    own = _named(tree.attributes(module))
    if "_c" in own or "_actual_script_module" in own:
        return
    yield module
    for _name, inner in _entries(own.get("_modules")):
        yield from _unscripted(inner, seen)


def _reset_slots(value: Any, kept: list[tuple[Any, Any]]) -> None:
    for slot, item in kept:
        slot.__set__(value, item)


def _refill_dict(container: Any, keys: list[Any], values: list[Any]) -> None:
    if (
        dict.__len__(container) == len(keys)
        and all(map(is_, dict.values(container), values))
        and all(map(is_, dict.keys(container), keys))
    ):
        return
    # An ordered one keeps its order apart.
    kind: Any = OrderedDict if issubclass(type(container), OrderedDict) else dict
    kind.clear(container)
    for key, item in zip(keys, values, strict=True):
        kind.__setitem__(container, key, item)


def _refill_set(container: Any, kept: list[Any]) -> None:
    if set.__len__(container) == len(kept) and all(map(is_, set.__iter__(container), kept)):
        return
    set.clear(container)
    set.update(container, kept)


def _refill(container: Any, kept: list[Any]) -> None:
    kind: Any = list if issubclass(type(container), list) else _deque
    if kind.__len__(container) == len(kept) and all(map(is_, kind.__iter__(container), kept)):
        return
    kind.clear(container)
    kind.extend(container, kept)


class Snapshot:
    """A state as it was, to be restored before each checked call."""

    def __init__(self, state: Any) -> None:
        reached = [item for _, item in _reached(state, "", set(), _MAX_DEPTH, numbers=False)]
        self._tensors = [
            (tensor, type(tensor), _get_data(tensor), _clone(tree.once(_detach(tensor))))
            for tensor in walk(state).values()
        ]
        self._arrays: list[tuple[Any, Any]] = []
        for item in reached:
            if issubclass(type(item), _ndarray):
                plain = _ndarray.view(item, _ndarray)
                if plain.flags.writeable and not _array(item)[1]:
                    self._arrays.append((plain, plain.copy()))
            elif type(item) is bytearray or type(item) is _array_of_numbers:
                self._arrays.append((item, item[:]))
        self._refills = [refill for item in reached for refill in _refills(item)]
        self._gradients = [
            (parameter, tree.gradient(parameter))
            for item in reached
            if issubclass(type(item), _Module)
            for _prefix, own in _modules(item)
            for _name, parameter in _entries(own.get("_parameters"))
            if tree.is_tensor(parameter)
        ]
        self._optimizers: list[tuple[Any, list[tuple[Any, list[tuple[str, Any]]]]]] = []
        for item in reached:
            if issubclass(type(item), _Optimizer):
                own = _named(tree.attributes(item))
                groups = [(group, list(_entries(group))) for group in _items(own.get("param_groups"))]
                self._optimizers.append((None if _pairs(own.get("state")) else own.get("state"), groups))

    def restore(self) -> None:
        for refill in self._refills:
            refill()
        with _no_grad():
            for tensor, kind, data, saved in self._tensors:
                if type(tensor) is not kind:
                    raise TypeError("a tensor of the state was given another class")
                # .data: the copy must not count as a mutation that autograd sees.
                _set_data(tensor, data)
                _copy(tree.once(_get_data(tensor)), saved)
            for item, kept in self._arrays:
                # An array of numpy's keeps its size.
                item[... if type(item) is _ndarray else slice(None)] = kept
        for parameter, gradient in self._gradients:
            if tree.is_tensor(parameter):
                _set_grad(parameter, gradient)
        for moments, groups in self._optimizers:
            if moments is not None:
                dict.clear(moments)
            for group, saved_group in groups:
                for name, item in saved_group:
                    if name != "params":
                        dict.__setitem__(group, name, item)
