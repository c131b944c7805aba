"""Gives tensors of a state other values, the same in every process: by one seed and each tensor's path."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import torch

__all__ = ["bend", "can_bend"]

# How far zeros and ones are moved, and copies by as much of each element: enough to show in 16 bits, and what
# is above zero stays there.
_LEAST, _MOST = 0.1, 0.5
# Noise of so many elements is repeated, and being prime they shift from row to row: it is made on one core.
_PERIOD = 1_000_003


def can_bend(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements may take other values: which integers are legal nobody knows."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.layout is not torch.strided:
        return False
    # Of an expanded one several elements are one number.
    return all(step or n == 1 for n, step in zip(tensor.shape, tensor.stride(), strict=True))


def bend(tensors: Mapping[str, torch.Tensor], kinds: Mapping[str, str], seed: int, signed: bool) -> None:
    """Move the named tensors in place, each as suits what it is; not below zero unless `signed`.

    Args:
        kinds: for each path what lies there: "zeros", "ones", "identity" or "copies".
    """
    for path, kind in kinds.items():
        if path not in tensors:
            continue
        tensor = tensors[path].detach()
        noise = _noise(tensor, f"{seed} {path}", signed)
        wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
        if kind == "copies":
            wide = wide * (1 + noise)
        else:
            # A product with a matrix sums as many terms as that has columns.
            wide = wide + (noise if kind == "ones" else noise / math.sqrt(_columns(tensor)))
        tensor.copy_(wide)


def _noise(tensor: torch.Tensor, name: str, signed: bool) -> torch.Tensor:
    """Made on the CPU: generators of devices draw other numbers."""
    salt = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7])
    g = torch.Generator("cpu").manual_seed(salt)
    drawn = torch.rand(
        2, min(tensor.numel(), _PERIOD), generator=g, dtype=torch.float64, device=torch.device("cpu")
    )
    noise = _LEAST + (_MOST - _LEAST) * drawn[0]
    if signed:
        noise = torch.where(drawn[1] < 0.5, -noise, noise)
    times = -(-tensor.numel() // max(1, noise.numel()))
    return noise.to(tensor.device).repeat(times)[: tensor.numel()].reshape(tensor.shape)


def _columns(tensor: torch.Tensor) -> int:
    wide = [n for n in tensor.shape if n > 1]
    return max(wide[1:], default=1)
