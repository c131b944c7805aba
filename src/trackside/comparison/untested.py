"""What a task does not test: inputs and state that are the same every time, so that code may ignore them.

Runs in the reference process; the judge decides which errors would show.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from trackside.comparison import matching
from trackside.comparison.oracle import Answer, Oracle
from trackside.comparison.sets import InputSet, alike
from trackside.workload import state

__all__ = ["answers_ignoring", "as_constructed", "never_raised", "overwritten"]


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


def as_constructed(held: Any, changed: Iterable[str]) -> list[str]:
    """State that holds nothing but zeros, or nothing but ones, and that calls do not change.

    So constructors leave norms and biases, and who drops them is right as well.
    """
    named = frozenset(changed)
    return [path for path, tensor in state.walk(held).items() if path not in named and _trivial(tensor)]


def _trivial(tensor: torch.Tensor) -> bool:
    # One number is a setting, and 0 or 1 is often what is meant.
    if tensor.numel() < 2 or not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    # Floats of one byte cannot be compared.
    values = tensor.detach().float() if tensor.element_size() == 1 else tensor.detach()
    first = values[(0,) * values.ndim].item()
    return first in (0, 1) and bool((values == first).all())
