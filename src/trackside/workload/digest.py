"""What a leaf of the state holds, by a hash of its bytes: one changed bit shows, whatever the rest is."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

import torch

from trackside.workload import tree

__all__ = ["Digest", "digest"]

Digest = list[float | str]
"""Two moments (0 unless asked for), the size (below zero for a plain number), and the hash."""

_Base: Any = torch._C.TensorBase
_detach, _contiguous, _reshape = torch.Tensor.detach, torch.Tensor.contiguous, torch.Tensor.reshape
_resolve_conj, _resolve_neg, _element_size = torch.resolve_conj, torch.resolve_neg, _Base.element_size
_sha256, _char = hashlib.sha256, ctypes.c_char
# Elements taken at a time: 32 MiB of words, or of doubles, so that a large model needs no copy of itself.
_CHUNK = 1 << 22
# The finaliser of SplitMix64: every bit of a word reaches every bit of what it gives.
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31


def digest(leaf: torch.Tensor | float, key: str = "", moments: bool = False) -> Digest:
    """A leaf's digest under a key; who does not know that beforehand cannot bring about a wanted hash.

    With `moments`, two sums over what is finite, the second weighted by place: leaves that nearly agree have
    ones that nearly agree.
    """
    if not tree.is_tensor(leaf):
        assert isinstance(leaf, bool | int | float)
        near = float(leaf) if abs(leaf) < 1e300 else 0.0
        whole = type(leaf) is not float or leaf.is_integer()
        # Written in base 16: Python refuses to write long integers in base 10.
        text = hex(int(leaf)) if whole else float.hex(leaf)
        return [near if near == near else 0.0, 0.0, -1.0, _sha256(f"{key}:{text}".encode()).hexdigest()]
    assert isinstance(leaf, torch.Tensor)
    facts = tree.facts_of("", leaf)
    flat = _reshape(_contiguous(_resolve_neg(_resolve_conj(_detach(leaf)))), (-1,))
    size = flat.numel()
    seed = _sha256(f"{key}:{facts['dtype']}:{facts['shape']}".encode())
    if facts["device"] == "cpu":
        if size:
            seed.update((_char * (size * _element_size(flat))).from_address(tree.address(flat)[0]))
        told = seed.hexdigest()
    else:
        told = f"{hash_on_device(flat, int.from_bytes(seed.digest()[:7], 'big')):016x}"
    sums = _moments(flat) if moments else (0.0, 0.0)
    return [*sums, float(size), told]


def hash_on_device(flat: torch.Tensor, key: int) -> int:
    """A sum of scrambled words, each with its place and the key: gigabytes need not leave the device."""
    data = flat.view(torch.uint8)
    whole = data.numel() // 8 * 8
    words = data[:whole]
    if words.storage_offset() % 8:
        words = words.clone()
    tail = torch.zeros(8, dtype=torch.uint8, device=data.device)
    tail[: data.numel() - whole] = data[whole:]
    total = _scrambled(tail.view(torch.int64), key, -1)
    words = words.view(torch.int64)
    for start in range(0, words.numel(), _CHUNK):
        total += _scrambled(words[start : start + _CHUNK], key, start)
    return int(total.item()) % 2**64


def _scrambled(words: torch.Tensor, key: int, start: int) -> torch.Tensor:
    places = torch.arange(start, start + words.numel(), dtype=torch.int64, device=words.device)
    return _mixed(_mixed(places.add_(key)).add_(words)).sum()


def _mixed(words: torch.Tensor) -> torch.Tensor:
    """In place, word by word, without a collision."""
    for shift, factor in _STEPS:
        words ^= (words >> shift) & (2 ** (64 - shift) - 1)
        words *= factor - 2**64
    words ^= (words >> _LAST_SHIFT) & (2 ** (64 - _LAST_SHIFT) - 1)
    return words


def _moments(flat: torch.Tensor) -> tuple[float, float]:
    real = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    plain = weighted = 0.0
    for start in range(0, real.numel(), _CHUNK):
        part = torch.nan_to_num(real[start : start + _CHUNK].double(), nan=0.0, posinf=0.0, neginf=0.0)
        places = torch.arange(start, start + part.numel(), dtype=torch.float64, device=part.device)
        plain += float(part.sum())
        weighted += float((part * (1 + places / real.numel())).sum())
    finite = abs(plain) < float("inf") and abs(weighted) < float("inf")
    return (plain, weighted) if finite else (0.0, 0.0)
