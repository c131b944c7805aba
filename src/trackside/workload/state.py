"""The tensors inside a workload's state, found by path, saved and put back bit for bit."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Snapshot", "walk"]

_MAX_DEPTH = 8
_clone = torch.Tensor.clone
_detach = torch.Tensor.detach


def walk(value: Any) -> dict[str, torch.Tensor]:
    """Every tensor reachable from `value` through modules, optimizers, containers and attributes."""
    found: dict[str, torch.Tensor] = {}
    _walk(value, "", found, set(), _MAX_DEPTH)
    return found


def _walk(value: Any, path: str, found: dict[str, torch.Tensor], seen: set[int], depth: int) -> None:
    if isinstance(value, torch.Tensor):
        if id(value) not in seen:
            seen.add(id(value))
            found[path or "state"] = value
            if value.grad is not None:
                found[f"{path}.grad"] = value.grad
        return
    if depth == 0 or id(value) in seen or isinstance(value, str | bytes | int | float | bool | type(None)):
        return
    seen.add(id(value))
    if isinstance(value, torch.nn.Module):
        for name, tensor in (*value.named_parameters(), *value.named_buffers()):
            _walk(tensor, f"{path}.{name}" if path else name, found, seen, depth)
    elif isinstance(value, torch.optim.Optimizer):
        parameters = [p for group in value.param_groups for p in group["params"]]
        for i, parameter in enumerate(parameters):
            _walk(value.state.get(parameter, {}), f"{path}.state[{i}]", found, seen, depth - 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _walk(item, f"{path}[{key!r}]", found, seen, depth - 1)
    elif isinstance(value, tuple | list):
        for i, item in enumerate(value):
            _walk(item, f"{path}[{i}]", found, seen, depth - 1)
    elif hasattr(value, "__dict__") and not callable(value):
        for name, item in vars(value).items():
            _walk(item, f"{path}.{name}", found, seen, depth - 1)


class Snapshot:
    """A state as it was, to be restored before each checked call."""

    def __init__(self, state: Any) -> None:
        self.tensors = [(tensor, tensor.data, _clone(_detach(tensor))) for tensor in walk(state).values()]
        self.containers = [
            (c, dict(c) if isinstance(c, dict) else list(c)) for c in _containers(state, set())
        ]
        self.modules = _instances(state, torch.nn.Module)
        self.optimizers = [
            (o, [dict(g) for g in o.param_groups])
            for o in _instances(state, torch.optim.Optimizer)
            if not o.state
        ]
        self.gradients = [(p, p.grad) for m in self.modules for p in m.parameters()]

    def restore(self) -> None:
        for container, kept in self.containers:
            _refill(container, kept)
        with torch.no_grad():
            for tensor, data, saved in self.tensors:
                # .data: the copy must not count as a mutation that autograd sees.
                tensor.data = data
                tensor.data.copy_(saved)
        for parameter, gradient in self.gradients:
            parameter.grad = gradient
        for optimizer, groups in self.optimizers:
            optimizer.state.clear()
            for group, saved_group in zip(optimizer.param_groups, groups, strict=True):
                group.update({k: v for k, v in saved_group.items() if k != "params"})


def _containers(value: Any, seen: set[int], depth: int = _MAX_DEPTH) -> list[Any]:
    """Dicts and lists, attribute dicts among them, whose entries `run` could reassign."""
    if depth == 0 or id(value) in seen or isinstance(value, torch.Tensor | torch.optim.Optimizer | type):
        return []
    seen.add(id(value))
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [value, *(found for item in list(inner) for found in _containers(item, seen, depth - 1))]
    if isinstance(value, tuple):
        return [found for item in value for found in _containers(item, seen, depth - 1)]
    if hasattr(value, "__dict__") and (isinstance(value, torch.nn.Module) or not callable(value)):
        return _containers(vars(value), seen, depth - 1)
    return []


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


def _instances(value: Any, kind: type[Any], depth: int = _MAX_DEPTH) -> list[Any]:
    if isinstance(value, kind):
        return [value]
    if depth == 0:
        return []
    items: Any = ()
    if isinstance(value, dict):
        items = value.values()
    elif isinstance(value, tuple | list):
        items = value
    elif hasattr(value, "__dict__") and not callable(value) and not isinstance(value, torch.Tensor):
        items = vars(value).values()
    return [found for item in items for found in _instances(item, kind, depth - 1)]
