"""What a task does not test: inputs and state that are the same every time, so that code may ignore them.

Runs in the reference process; the judge decides which errors would show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from trackside.comparison import matching
from trackside.comparison.oracle import Answer, Oracle
from trackside.comparison.sets import InputSet, alike
from trackside.workload import state
from trackside.workload.bending import can_bend

__all__ = ["answers_ignoring", "as_constructed", "never_raised", "ordinary", "overwritten"]

# Elements that tell most tensors of one shape apart, before whole ones are compared.
_TOLD_BY = 8


def answers_ignoring(
    oracle: Oracle, made: InputSet, seed: int, answer: Answer, drawn: dict[int, torch.Tensor]
) -> list[dict[str, Any]]:
    """How far off code is that takes an input of a probe for what every draw has, for each such input."""
    found = []
    for i, tensor in drawn.items():
        tensors = list(made.tensors)
        tensors[i] = tensor
        try:
            lazy = oracle.answer(made.rebuilt(tensors), seed)
        except Exception:
            # The probe's other inputs need not suit this one: nothing is known then.
            continue
        leaves = [
            {"path": path, **matching.compare(lazy[path], wanted)}
            for path, wanted in answer.items()
            if path in lazy
        ]
        found.append({"input": i, "leaves": leaves})
    return found


def overwritten(oracle: Oracle, made: InputSet, seed: int, leaf: int) -> bool:
    """Whether the baseline writes into an input and never reads it: room for an output is no input."""
    if leaf not in oracle.changed_inputs:
        return False
    try:
        here = oracle.answer(made.rebuilt(), seed)
        there = oracle.answer(made.rebuilt(_with_other_values(made, leaf, seed)), seed)
    except Exception:
        return False
    return here.keys() == there.keys() and all(_equal(v, there[path]) for path, v in here.items())


def never_raised(oracle: Oracle, draws: tuple[InputSet, InputSet], seed: int) -> list[str]:
    """Flags and counts that are the same in two draws, and would be others if an input held a NaN.

    Code that returns them without a look at its inputs is right in every draw.
    """
    try:
        first, second = (oracle.answer(made.rebuilt(), seed) for made in draws)
        same = [path for path, v in first.items() if _is_discrete(v) and _equal(v, second.get(path))]
        if not same:
            return []
        bent = oracle.answer(draws[0].rebuilt([_with_a_nan(x, seed) for x in draws[0].tensors]), seed)
    except Exception:
        # A baseline that refuses NaN has no answer that would tell of them.
        return []
    return [path for path in same if path in bent and not _equal(first[path], bent[path])]


def _is_discrete(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not (value.is_floating_point() or value.is_complex())
    return isinstance(value, int)


def _with_a_nan(x: torch.Tensor, seed: int) -> torch.Tensor:
    if not x.is_floating_point() or not x.numel():
        return x
    bent = x.detach().clone(memory_format=torch.contiguous_format)
    bent.reshape(-1)[seed % x.numel()] = float("nan")
    return bent


def _with_other_values(made: InputSet, leaf: int, seed: int) -> list[torch.Tensor]:
    x = made.tensors[leaf].detach()
    g = torch.Generator(x.device).manual_seed(seed)
    if x.is_floating_point() or x.is_complex():
        values = torch.randn(x.shape, generator=g, device=x.device)
    else:
        # Integers may be indices, and those of 0 and 1 are hardly ever out of range.
        values = x == 0
    tensors = list(made.tensors)
    tensors[leaf] = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(values)
    return tensors


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return alike(one, other)
    return type(one) is type(other) and bool(one == other)


def as_constructed(
    held: Any, changed: Iterable[str], other: Callable[[], Any] | None = None
) -> dict[str, str]:
    """State that is special as it was made, and as what: "zeros", "ones", "identity" or "copies".

    So constructors leave norms and biases, and a copied layer or a target network starts; who counts on that
    is right as well. What calls change will not stay so, copies aside: these may learn alike.

    Args:
        other: makes the state from another seed. A tensor that is no parameter and the same then too is a
            table (of rotary frequencies, say), which each layer may hold by right; without, all such are.
    """
    tensors = state.walk(held)
    named = frozenset(changed)
    found = {path: kind for path, t in tensors.items() if path not in named and (kind := _trivial(t))}
    copies = [path for path in _copies(tensors) if path not in found]
    drawn = [path for path in copies if not isinstance(tensors[path], torch.nn.Parameter)]
    tables: set[str] = set(drawn)
    if drawn and other is not None:
        others = _from_another_seed(other)
        tables = {path for path in drawn if path in others and alike(tensors[path], others[path])}
    return found | {path: "copies" for path in copies if path not in tables}


def ordinary(held: Any, changed: Iterable[str], other: Callable[[], Any]) -> list[str]:
    """State that is like parameters, of any values, and that no call changes; the largest first.

    What is no parameter and the same from every seed is a table, and what takes two values only is a mask:
    code may count on what these are.

    Args:
        other: makes the state from another seed.
    """
    named = frozenset(changed)
    tensors = {
        path: tensor
        for path, tensor in state.walk(held).items()
        if path not in named and tensor.numel() and can_bend(tensor)
    }
    drawn = {
        path
        for path, tensor in tensors.items()
        if not isinstance(tensor, torch.nn.Parameter) and not _is_mask(tensor)
    }
    others = _from_another_seed(other) if drawn else {}
    found = [
        path
        for path, tensor in tensors.items()
        if isinstance(tensor, torch.nn.Parameter)
        or (path in drawn and path in others and not alike(tensor, others[path]))
    ]
    return sorted(found, key=lambda path: -tensors[path].numel())


def _from_another_seed(other: Callable[[], Any]) -> dict[str, torch.Tensor]:
    try:
        return state.walk(other())
    except Exception:
        # It may want its own seed: nothing is known then.
        return {}


def _trivial(tensor: torch.Tensor) -> str | None:
    # One number is a setting, and 0 or 1 is often what is meant.
    if tensor.numel() < 2:
        return None
    values = _readable(tensor)
    first = values[(0,) * values.ndim].item()
    if first in (0, 1) and bool((values == first).all()):
        return "ones" if first else "zeros"
    whole = not (tensor.is_floating_point() or tensor.is_complex())
    return None if whole or first not in (0, 1) or not _is_identity(values) else "identity"


def _is_identity(values: torch.Tensor) -> bool:
    """Whether a product or a convolution with it gives back what went in, all of it or a part."""
    *_, rows, columns = (0, 0, *values.shape)
    if min(rows, columns) > 1:
        eye = torch.eye(rows, columns, dtype=values.dtype, device=values.device)
        if torch.equal(values, eye.expand_as(values)):
            return True
    if not (3 <= values.ndim <= 5 and values.shape[0] > 1):
        return False
    groups = len(values) if values.shape[1] == 1 else 1
    return torch.equal(values, torch.nn.init.dirac_(torch.empty_like(values), groups))


def _copies(tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """Paths of tensors that hold the same bits as another one in memory of its own.

    Integers of more than a byte are places and counts, and what takes two values only is a mask.
    """
    alike_so_far: dict[Any, list[list[str]]] = {}
    for path, tensor in tensors.items():
        if tensor.numel() < 2 or not (
            tensor.is_floating_point() or tensor.is_complex() or tensor.dtype in (torch.int8, torch.uint8)
        ):
            continue
        start = tuple(_readable(tensor).reshape(-1)[:_TOLD_BY].tolist())
        groups = alike_so_far.setdefault((tensor.shape, tensor.dtype, str(start)), [])
        for group in groups:
            if alike(tensors[group[0]], tensor):
                group.append(path)
                break
        else:
            groups.append([path])
    return [
        path
        for groups in alike_so_far.values()
        for group in groups
        if len({_place(tensors[path]) for path in group}) > 1 and not _is_mask(tensors[group[0]])
        for path in group
    ]


def _place(tensor: torch.Tensor) -> tuple[int, tuple[int, ...]]:
    return tensor.data_ptr(), tensor.stride()


def _is_mask(tensor: torch.Tensor) -> bool:
    values = _readable(tensor)
    values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    return bool(((values == values.min()) | (values == values.max())).all())


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    # Floats of one byte cannot be compared.
    one_byte = tensor.is_floating_point() and tensor.element_size() == 1
    return tensor.detach().float() if one_byte else tensor.detach()
