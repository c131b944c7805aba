"""How one leaf of an output differs from another: floats by bins of magnitude, the rest exactly, ties aside.

Runs in the reference process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from trackside.comparison import accuracy
from trackside.workload import tree

__all__ = ["acceptable", "compare", "first_of", "same_bits"]

# An input whose values collide this often tells hardly any two indices apart: a mask, not what was ranked.
_MOST_COLLISIONS = 0.25
_SAMPLED_ROWS = 64


def same_bits(found: Any, wanted: Any) -> bool:
    """Whether two leaves are of one type and equal in every element."""
    if isinstance(found, torch.Tensor) and isinstance(wanted, torch.Tensor):
        return found.dtype == wanted.dtype and torch.equal(found, wanted)
    return type(found) is type(wanted) and bool(found == wanted)


def compare(found: Any, wanted: Any) -> dict[str, Any]:
    """Errors per bin for floats; for all else how many elements differ, and the first of them."""
    if isinstance(found, float) and isinstance(wanted, torch.Tensor | float):
        pair = (torch.tensor([float(value)], dtype=torch.float64) for value in (found, wanted))
        return {"dtype": "float32", "plain": True, **accuracy.measure(*pair)}
    if not isinstance(found, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return _plain_difference("value", int(found != wanted), wanted, found)
    if tuple(found.shape) != tuple(wanted.shape):
        return _plain_difference("shape", 1, list(wanted.shape), list(found.shape))
    dtype = tree.dtype_name(found.dtype)
    if found.is_floating_point() or found.is_complex():
        wide = wanted.to(torch.complex128 if found.is_complex() else torch.float64)
        return {"dtype": dtype, **accuracy.measure(found, wide)}
    return {"dtype": dtype, **first_of(found != wanted.to(found.dtype), found, wanted)}


def first_of(wrong: torch.Tensor, found: torch.Tensor, wanted: torch.Tensor) -> dict[str, Any]:
    """How many elements are wrong; where the first is, what was expected there and what found."""
    count = int(wrong.sum())
    row = {"mismatches": count, "elements": found.numel(), "at": [], "expected": "", "found": ""}
    if not count:
        return row
    at = int(torch.nonzero(wrong.reshape(-1)).reshape(-1)[0])
    return {
        **row,
        "at": accuracy.position(at, list(found.shape)),
        "expected": str(wanted.reshape(-1)[at].item()),
        "found": str(found.reshape(-1)[at].item()),
    }


def _plain_difference(kind: str, mismatches: int, wanted: Any, found: Any) -> dict[str, Any]:
    return {
        "dtype": kind,
        "mismatches": mismatches,
        "elements": 1,
        "at": [],
        "expected": str(wanted),
        "found": str(found),
    }


def acceptable(
    found: torch.Tensor,
    wanted: torch.Tensor,
    others: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
) -> torch.Tensor:
    """Which integers will do: the oracle's, one of `others` (first the baseline's), an equal key's index."""
    accepted = (found == wanted) | _picks_equal_key(found, wanted, inputs)
    for other in others:
        accepted |= found == other
    return accepted & ~_repeats(found, others[0])


def _picks_equal_key(
    found: torch.Tensor, wanted: torch.Tensor, inputs: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Where `found`, read as an index into the input that `wanted` ranks, picks the same value."""
    equal = torch.zeros_like(found, dtype=torch.bool)
    if found.dtype != torch.int64 or not found.ndim:
        return equal
    for x in inputs:
        for picks, wants in ((found, wanted), (found.unsqueeze(-1), wanted.unsqueeze(-1))):
            if (
                x.is_floating_point()
                and x.ndim == picks.ndim
                and x.shape[:-1] == picks.shape[:-1]
                and x.shape[-1]
                and _ranks(wants, x)
            ):
                last = x.shape[-1] - 1
                inside = (picks >= 0) & (picks <= last)
                same = torch.gather(x, -1, picks.clamp(0, last)) == torch.gather(x, -1, wants.clamp(0, last))
                equal |= (inside & same).reshape(found.shape)
    return equal


def _ranks(indices: torch.Tensor, x: torch.Tensor) -> bool:
    """Whether indices are the first of x's order along its last dimension, rising or falling, and x tells.

    Beside the scores a mask may be in order too: every index before the end picks its largest value. So x
    must have chosen most of the indices itself, or have values that seldom collide.
    """
    width = indices.shape[-1]
    picked = torch.gather(x, -1, indices.clamp(0, x.shape[-1] - 1))
    for falling in (False, True):
        order = torch.sort(x, dim=-1, descending=falling, stable=True)
        if torch.equal(picked, order.values[..., :width]):
            chosen = float((order.indices[..., :width] == indices).double().mean())
            return chosen > 0.5 or _collisions(order.values) < _MOST_COLLISIONS
    return False


def _collisions(ordered: torch.Tensor) -> float:
    """How likely two elements of a sorted row are equal, in the mean over some rows."""
    rows = ordered.reshape(-1, ordered.shape[-1])[:_SAMPLED_ROWS]
    shares = []
    for row in rows:
        counts = torch.unique_consecutive(row, return_counts=True)[1].double()
        shares.append(float((counts / row.numel()).square().sum()))
    return sum(shares) / len(shares)


def _repeats(found: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """Indices that occur more than once in a row where the baseline's row holds each of its own but once."""
    if found.dtype != torch.int64 or not found.ndim or found.shape[-1] < 2:
        return torch.zeros_like(found, dtype=torch.bool)
    ordered, places = torch.sort(found, dim=-1, stable=True)
    again = torch.zeros_like(found, dtype=torch.bool)
    again[..., 1:] = ordered[..., 1:] == ordered[..., :-1]
    distinct = torch.sort(base, dim=-1).values.diff(dim=-1).ne(0).all(dim=-1, keepdim=True)
    return torch.zeros_like(again).scatter(-1, places, again) & distinct
