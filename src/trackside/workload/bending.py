"""Gives tensors of a state other values, the same in every process: by one seed and each tensor's path."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping

import torch

__all__ = ["bend", "can_bend"]

# How far zeros and ones are moved, and copies by as much of each element: enough to show in 16 bits, and what
# is above zero stays there.
_LEAST, _MOST = 0.1, 0.5
# Noise of so many elements is repeated, and being prime they shift from row to row: it is made on one core.
_PERIOD = 1_000_003
# Values of any kind are multiplied by 1 + noise, and moved by noise of their own rms. So much larger are they
# then, and what comes out of a deep net's layers by a power of it.
_GROWTH = math.sqrt(1 + 2 * (_LEAST**2 + _LEAST * _MOST + _MOST**2) / 3)
# Beyond this sigmoids and softmaxes are shut: what is larger comes back to where they answer.
_OPEN = 4.0


def can_bend(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements may take other values: which integers are legal nobody knows."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.layout is not torch.strided:
        return False
    # Of an expanded one several elements are one number.
    return all(step or n == 1 for n, step in zip(tensor.shape, tensor.stride(), strict=True))


def bend(tensors: Mapping[str, torch.Tensor], kinds: Mapping[str, str], seed: int, signed: bool) -> None:
    """Move the named tensors in place, each as suits what it is; not below zero unless `signed`.

    Args:
        kinds: for each path what lies there: "zeros", "ones", "identity", "copies" or "any".
    """
    for path, kind in kinds.items():
        if path not in tensors:
            continue
        tensor = tensors[path].detach()
        size = _size(tensor) if kind == "any" else 0.0
        factors, steps = (_Noise(tensor.numel(), f"{seed} {path}{which}", signed) for which in ("", " +"))
        for start, piece in _pieces(tensor):
            wide = piece.to(_wide_type(tensor))
            noise = factors.of(start, piece)
            if kind == "any" and size:
                moved = wide * (1 + noise) + size * steps.of(start, piece)
                wide = moved * (min(1.0, _OPEN / size) / _GROWTH)
            elif kind == "copies":
                wide = wide * (1 + noise)
            else:
                # A product with a matrix sums as many terms as that has columns.
                wide = wide + (noise if kind == "ones" else noise / math.sqrt(_columns(tensor)))
            piece.copy_(wide)


class _Noise:
    """What each element of a tensor is moved by; made on the CPU, since devices draw other numbers."""

    def __init__(self, elements: int, name: str, signed: bool) -> None:
        salt = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7])
        g = torch.Generator("cpu").manual_seed(salt)
        drawn = torch.rand(
            2, min(elements, _PERIOD), generator=g, dtype=torch.float64, device=torch.device("cpu")
        )
        noise = _LEAST + (_MOST - _LEAST) * drawn[0]
        self._values = torch.where(drawn[1] < 0.5, -noise, noise) if signed else noise

    def of(self, start: int, piece: torch.Tensor) -> torch.Tensor:
        """The noise for elements that are numbered from `start`, in the shape of these."""
        period = max(1, self._values.numel())
        values = self._values.roll(-(start % period)).to(piece.device)
        return values.repeat(-(-piece.numel() // period))[: piece.numel()].reshape(piece.shape)


def _pieces(tensor: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Views of so many rows that doubles of them take little memory; each with its first element's number."""
    if tensor.ndim == 0 or not tensor.numel():
        yield 0, tensor
        return
    row = tensor.numel() // len(tensor)
    many = max(1, _PERIOD // row)
    for first in range(0, len(tensor), many):
        yield first * row, tensor[first : first + many]


def _size(tensor: torch.Tensor) -> float:
    """The rms of what is finite, as a power of two: in another process it is summed in another order."""
    total, count = 0.0, 0
    for _, piece in _pieces(tensor):
        squares = piece.to(_wide_type(tensor)).abs() ** 2
        finite = squares.isfinite()
        total += float(squares[finite].sum())
        count += int(finite.sum())
    return 2.0 ** round(math.log2(total / count) / 2) if total else 0.0


def _wide_type(tensor: torch.Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64


def _columns(tensor: torch.Tensor) -> int:
    wide = [n for n in tensor.shape if n > 1]
    return max(wide[1:], default=1)
