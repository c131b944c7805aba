"""The tensors and numbers inside a workload's state, found by path, saved and put back bit for bit.

State is what hangs together from what `setup` returned: parameters, buffers and plain attributes of modules,
moments of optimizers, entries of containers, attributes and slots of other objects. What only a closure or a
global variable holds is not found.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

__all__ = ["Snapshot", "leaves", "walk"]

_MAX_DEPTH = 8
_NUMBERS = (bool, int, float)
# More are a table (a vocabulary, say) that no call changes.
_MOST_NUMBERS = 1000
_clone = torch.Tensor.clone
_detach = torch.Tensor.detach

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
    torch.Generator,
    logging.Logger,
)


def walk(value: Any) -> dict[str, torch.Tensor]:
    """Every dense tensor reachable from `value`, numpy arrays among them as tensors on the same memory."""
    return {path: leaf for path, leaf in leaves(value).items() if isinstance(leaf, torch.Tensor)}


def leaves(value: Any) -> dict[str, torch.Tensor | float]:
    """The tensors that `walk` finds, and every plain number."""
    found: dict[str, torch.Tensor | float] = {}
    plain = 0
    for path, item in _reached(value, "", set(), _MAX_DEPTH):
        if isinstance(item, torch.Tensor):
            # What is packed (sparse, MKL-DNN) is its owner's affair: there is no common form to compare.
            if item.layout is torch.strided:
                found[path or "state"] = item
                if item.grad is not None and item.grad.layout is torch.strided:
                    found[f"{path}.grad"] = item.grad
        elif isinstance(item, np.ndarray):
            # Not all of numpy's types and strides are torch's too.
            with contextlib.suppress(TypeError, ValueError):
                found[path or "state"] = torch.from_numpy(item)
        elif type(item) in _NUMBERS and plain < _MOST_NUMBERS:
            found[path or "state"] = item
            plain += 1
    return found


def _reached(value: Any, path: str, seen: set[int], depth: int) -> Iterator[tuple[str, Any]]:
    """Whatever can be reached, each object once; numbers wherever they stand."""
    if type(value) in _NUMBERS:
        yield path, value
        return
    if depth == 0 or id(value) in seen:
        return
    seen.add(id(value))
    yield path, value
    for name, item in _inside(value):
        inner = path + name if name[0] in ".[" else f"{path}.{name}" if path else name
        yield from _reached(item, inner, seen, depth - 1)


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Name and value of what an object holds."""
    if isinstance(value, (torch.Tensor, np.ndarray, *_CLOSED)):
        return
    if isinstance(value, torch.nn.Module):
        yield from value.named_parameters()
        yield from value.named_buffers()
        for prefix, module in value.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue
            for name, item in vars(module).items():
                if name not in _OF_EVERY_MODULE and not isinstance(item, torch.nn.Module):
                    yield f"{prefix}.{name}" if prefix else name, item
    elif isinstance(value, torch.optim.Optimizer):
        parameters = [p for group in value.param_groups for p in group["params"]]
        for i, parameter in enumerate(parameters):
            yield f".state[{i}]", value.state.get(parameter, {})
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"[{key!r}]", item
    elif isinstance(value, tuple | list | collections.deque):
        for i, item in enumerate(value):
            yield f"[{i}]", item
    else:
        for name, item in (_attributes(value) | _slots(value)).items():
            yield f".{name}", item


def _attributes(value: Any) -> dict[str, Any]:
    """An object's own attribute dict."""
    held = getattr(value, "__dict__", None)
    return held if isinstance(held, dict) else {}


def _slots(value: Any) -> dict[str, Any]:
    named = [n for kind in type(value).__mro__ for n in _names(vars(kind).get("__slots__", ()))]
    return {n: getattr(value, n) for n in named if n not in ("__dict__", "__weakref__") and hasattr(value, n)}


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _refills(value: Any) -> Iterator[Callable[[], None]]:
    """What puts back an object's entries and attributes that `run` may reassign."""
    if isinstance(value, (torch.Tensor, np.ndarray, torch.optim.Optimizer, tuple, *_CLOSED)):
        return
    held: list[Any] = []
    if isinstance(value, torch.nn.Module):
        for module in value.modules():
            held += [vars(module), module._parameters, module._buffers, module._modules]
    elif isinstance(value, dict | list | collections.deque):
        held = [value]
    else:
        held = [_attributes(value)]
        if kept := _slots(value):
            yield partial(_reset_slots, value, kept)
    for container in held:
        yield partial(_refill, container, dict(container) if isinstance(container, dict) else list(container))


def _reset_slots(value: Any, kept: dict[str, Any]) -> None:
    for name, item in kept.items():
        object.__setattr__(value, name, item)


def _refill(container: Any, kept: Any) -> None:
    if len(container) == len(kept) and all(
        a is b
        for a, b in zip(
            container.values() if isinstance(container, dict) else container,
            kept.values() if isinstance(kept, dict) else kept,
            strict=True,
        )
    ):
        return
    container.clear()
    if isinstance(container, dict):
        container.update(kept)
    else:
        container.extend(kept)


class Snapshot:
    """A state as it was, to be restored before each checked call."""

    def __init__(self, state: Any) -> None:
        reached = [item for _, item in _reached(state, "", set(), _MAX_DEPTH)]
        self._tensors = [(tensor, tensor.data, _clone(_detach(tensor))) for tensor in walk(state).values()]
        self._refills = [refill for item in reached for refill in _refills(item)]
        self._gradients = [
            (p, p.grad) for m in reached if isinstance(m, torch.nn.Module) for p in m.parameters()
        ]
        self._optimizers = [
            (o, [dict(g) for g in o.param_groups])
            for o in reached
            if isinstance(o, torch.optim.Optimizer) and not o.state
        ]

    def restore(self) -> None:
        for refill in self._refills:
            refill()
        with torch.no_grad():
            for tensor, data, saved in self._tensors:
                # .data: the copy must not count as a mutation that autograd sees.
                tensor.data = data
                tensor.data.copy_(saved)
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        for optimizer, groups in self._optimizers:
            optimizer.state.clear()
            for group, saved_group in zip(optimizer.param_groups, groups, strict=True):
                group.update({k: v for k, v in saved_group.items() if k != "params"})
