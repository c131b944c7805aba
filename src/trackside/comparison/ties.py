"""Scores that an operator makes equal: how many there are, and what other orders of equals give.

Runs in the reference process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["Order", "flattened", "orders", "told_apart", "watched"]

Order = Callable[[torch.Tensor], torch.Tensor]
"""From numbers to their places among each other."""

# Operators that keep the order of unequal numbers, but for those that they make equal: 0 at one end, ...
_VANISHING = {
    torch.ops.aten.exp,
    torch.ops.aten.exp_,
    torch.ops.aten.exp2,
    torch.ops.aten._softmax,
    torch.ops.aten.sigmoid,
    torch.ops.aten.sigmoid_,
    torch.ops.aten.erfc,
}
# ... 1 or -1 at the other.
_SATURATING = {
    torch.ops.aten.sigmoid,
    torch.ops.aten.sigmoid_,
    torch.ops.aten.tanh,
    torch.ops.aten.tanh_,
    torch.ops.aten.erf,
}
_FALLING = {torch.ops.aten.erfc}
# Far below what float32 has between 0 and the next number, and between 1 and the next, for millions of them.
_FROM_ZERO, _FROM_ONE = 1e-300, 2.0**-52
# Orders by chance, beside those of size and of place: of equals that few rows have, one shows the rows.
_BY_CHANCE = 4


def flattened(func: Any, args: Any, made: Any) -> int:
    """How many finite numbers an operator brought so near to 0, 1 or -1 that float32 has nothing between."""
    if not watched(func) or not made.is_floating_point():
        return 0
    vanished, saturated = _flat(func, made)
    # In place, what went in is gone; infinities are masks, and meant to be flat.
    given = args[0] if args[0] is not made else torch.zeros((), device=made.device)
    return int(((vanished | saturated) & torch.isfinite(given)).sum())


def watched(func: Any) -> bool:
    """Whether an operator may make unequal numbers equal."""
    return getattr(func, "overloadpacket", None) in _VANISHING | _SATURATING


def told_apart(func: Any, given: torch.Tensor, made: torch.Tensor, order: Order) -> torch.Tensor:
    """What an operator made of `given`, with equals as far apart as only an order sees, in that order."""
    if made.dtype != torch.float64:
        return made
    vanished, saturated = _flat(func, made)
    given = -given if func.overloadpacket in _FALLING else given
    apart = made.clone()
    for where, end, step in (
        (vanished, 0.0, _FROM_ZERO),
        (saturated & (made > 0), 1.0, _FROM_ONE),
        (saturated & (made < 0), -1.0, _FROM_ONE),
    ):
        where = where & torch.isfinite(given)
        if bool(where.any()):
            places = order(given[where]).double()
            # Further in from where they are flat: up from 0 and -1, down from 1.
            apart[where] = end + step * (places - places.max() if end > 0 else places + 1)
    return apart


def _flat(func: Any, made: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where numbers are 0, and where 1 or -1, as far as float32 can tell."""
    limits, size = torch.finfo(torch.float32), made.abs()
    nowhere = torch.zeros_like(made, dtype=torch.bool)
    return (
        size < limits.tiny if func.overloadpacket in _VANISHING else nowhere,
        1 - size < limits.eps / 2 if func.overloadpacket in _SATURATING else nowhere,
    )


def orders(generator: torch.Generator) -> Iterator[Order]:
    """Orders in which equals may come: by what they were made from, by their places, by chance."""
    yield lambda given: torch.unique(given, return_inverse=True)[1]
    yield lambda given: -torch.unique(given, return_inverse=True)[1]
    yield lambda given: torch.arange(given.numel(), device=given.device)
    yield lambda given: -torch.arange(given.numel(), device=given.device)
    for _ in range(_BY_CHANCE):
        yield lambda given: torch.randperm(given.numel(), generator=generator, device=given.device)
