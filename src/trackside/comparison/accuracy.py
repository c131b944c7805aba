"""How far outputs lie from the oracle, in bins of the oracle's magnitude. Runs in the reference process.

Bins make small values count: one norm over everything accepts zeros wherever the oracle is small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from trackside.comparison.tolerance import FIRST_EXPONENT, ZERO_BIN, Bins, merge, smallest_bin

__all__ = [
    "ZERO_BIN",
    "Limits",
    "as_real",
    "beyond",
    "has_small_part",
    "is_finite",
    "locate",
    "magnitude",
    "measure",
    "misplaced_in",
    "position",
]

_BINS = ZERO_BIN + 1
_PIECE = 1 << 17
# Errors so many times a bin's rms are jumps: rounding fell the other way at a tie, a threshold or a kink. Of
# 10**8 that are normally distributed none is. What is left may have jumps again, up to so many in all.
_JUMP, _FEW_JUMPS = 8.0, 1 / 64
# Fewer elements than this are no part of an output that is about something of its own.
_LEAST_PART = 16
# Of a double, its sign aside.
_EXPONENTS = 2048
# Numbers whose squares are neither infinite nor less exact than others.
_SQUARABLE = 1e-140, 1e140


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def is_finite(value: Any, dtype: torch.dtype | None) -> bool:
    """Whether floats are finite in that type, or in their own; whatever is none has no infinities."""
    if isinstance(value, float | complex):
        value = torch.tensor(value, dtype=torch.complex128 if isinstance(value, complex) else torch.float64)
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return True
    return bool(torch.isfinite(as_real(value.to(dtype or value.dtype)).double()).all())


def _bin_index(oracle: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """For each float64 its bin, from the exponent's bits: frexp takes ten times as long.

    The bin of the smallest normal number of `dtype` begins with it: those are rounded and never flushed.
    """
    exponent = ((oracle.view(torch.int64) >> 52) & 0x7FF) + FIRST_EXPONENT
    index = exponent >> 2
    edge = smallest_bin(str(dtype).removeprefix("torch."))
    # Such a number is a power of two whose exponent is the last of the four.
    index = torch.where((index == edge) & (exponent < 4 * edge + 3), edge - 1, index)
    return torch.where(oracle == 0, ZERO_BIN, index)


def measure(found: torch.Tensor, oracle: torch.Tensor, bulk: bool = False) -> dict[str, Any]:
    """Error of `found` against a wider `oracle`, per bin: count, rms and largest error, rms of the oracle.

    Where the oracle, rounded to the output's type, is not finite, the output must be the same NaN or
    infinity; positions where it is not are counted as `nonfinite` and the first is named. With `bulk` the
    same bins come without jumps too, which would make an rms say nothing of all the other elements.
    """
    flat, wanted = as_real(found).reshape(-1), as_real(oracle).reshape(-1).double().resolve_neg()
    bins, bad, first = _binned(flat, wanted)
    return {
        "bins": bins,
        **({"bulk": _without_jumps(flat, wanted, bins)} if bulk else {}),
        "nonfinite": bad,
        "nonfinite_at": None if first is None else position(first, list(as_real(found).shape)),
        "expected": _number(wanted[first]) if first is not None else None,
        "found": _number(flat[first]) if first is not None else None,
        "elements": flat.numel(),
    }


def _without_jumps(flat: torch.Tensor, wanted: torch.Tensor, bins: Bins) -> Bins:
    """The bins without errors far beyond their rms, found by powers of two, each looked at once."""
    far = [
        int(n)
        for n, (_, rms, largest, _) in bins.items()
        if largest > _JUMP * rms and _SQUARABLE[0] < rms < _SQUARABLE[1]
    ]
    if not far:
        return bins
    place = torch.full((_BINS,), -1, dtype=torch.int64, device=flat.device)
    place[far] = torch.arange(len(far), device=flat.device)
    counts, squares = (
        torch.zeros(len(far) * _EXPONENTS, dtype=torch.float64, device=flat.device) for _ in range(2)
    )
    step = flat.numel() if flat.is_cuda else _PIECE
    for start in range(0, flat.numel(), max(1, step)):
        piece, right = flat[start : start + step], wanted[start : start + step]
        error = (piece.double() - right).abs_()
        row = place[_bin_index(torch.nan_to_num(right), piece.dtype)]
        use = (row >= 0) & torch.isfinite(error) & torch.isfinite(right)
        error = error[use]
        key = row[use] * _EXPONENTS + (error.view(torch.int64) >> 52)
        counts += torch.bincount(key, minlength=counts.numel())
        squares += torch.bincount(key, weights=error * error, minlength=counts.numel())
    kept = dict(bins)
    for number, n, power in zip(
        far, counts.reshape(len(far), -1).tolist(), squares.reshape(len(far), -1).tolist(), strict=True
    ):
        kept[str(number)] = _trimmed(n, power, bins[str(number)])
    return kept


def _trimmed(counts: list[float], squares: list[float], row: list[float]) -> list[float]:
    """A bin's row without its jumps, by how many errors there are of each exponent, and their squares."""
    end = max(e for e, n in enumerate(counts) if n) + 1
    while True:
        n = sum(counts[:end])
        rms = math.sqrt(sum(squares[:end]) / n)
        first = math.frexp(_JUMP * rms)[1] + 1022
        last = max((e for e, n in enumerate(counts[:end]) if n), default=0)
        if last <= first:
            break
        end = last
    if n < (1 - _FEW_JUMPS) * row[0]:
        # Where more than a few would go, they are what the bin's errors are like.
        return row
    return [n, rms, min(row[2], math.ldexp(1.0, last - 1022)), row[3]]


class Limits:
    """For each bin how far off its elements may be; those of others may be off by anything."""

    def __init__(self, allowed: dict[str, float], like: torch.Tensor) -> None:
        self._dtype = as_real(like).dtype
        self._by_bin = torch.full((_BINS,), math.inf, dtype=torch.float64, device=like.device)
        self.set(allowed)

    def set(self, allowed: dict[str, float]) -> None:
        for name, value in allowed.items():
            self._by_bin[int(name)] = value

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """The limits of the bins that these doubles lie in."""
        return self._by_bin[_bin_index(torch.nan_to_num(values), self._dtype)]

    def near(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Where two are as close as the second's bin allows, with a number for limit; NaN and inf are not."""
        limit = self.of(other)
        return ((one - other).abs() <= limit) & torch.isfinite(limit)


def _binned(flat: torch.Tensor, wanted: torch.Tensor) -> tuple[Bins, int, int | None]:
    """Bins, how many NaN and infinities are out of place, and the first of these."""
    # In pieces that stay in a CPU's cache; a GPU takes everything at once.
    step = flat.numel() if flat.is_cuda else _PIECE
    bins: Bins = {}
    bad, first = 0, None
    for start in range(0, flat.numel(), max(1, step)):
        piece, right = flat[start : start + step], wanted[start : start + step]
        errors, misplaced = _errors(piece, right)
        merge(bins, errors)
        if misplaced is not None:
            bad += int(misplaced.sum())
            first = first if first is not None else start + int(torch.nonzero(misplaced).reshape(-1)[0])
    return bins, bad, first


def beyond(found: torch.Tensor, oracle: torch.Tensor, allowed: dict[str, float]) -> torch.Tensor:
    """Which elements, counted flat, are further off than their bin allows; those without a number are not."""
    flat, wanted = as_real(found).reshape(-1), as_real(oracle).reshape(-1).double().resolve_neg()
    error = (flat.double() - wanted).abs_()
    held = torch.isfinite(wanted.to(flat.dtype))
    return held & (error > Limits(allowed, flat).of(wanted))


def has_small_part(oracle: torch.Tensor, below: float) -> bool:
    """Whether all of some index of a dimension, a channel say, is mostly below that, exact zeros aside."""
    size = as_real(oracle).abs()
    small = (size > 0) & (size < below)
    for dim, n in enumerate(size.shape):
        rest = size.numel() // max(1, n)
        if n > 1 and rest >= _LEAST_PART:
            counts = small.movedim(dim, 0).reshape(n, -1).sum(dim=1)
            if bool((2 * counts > rest).any()):
                return True
    return False


def _errors(found: torch.Tensor, oracle: torch.Tensor) -> tuple[Bins, torch.Tensor | None]:
    """Bins of one piece, and where NaN and infinities are out of place (None when nowhere)."""
    values = found.double()
    error = (values - oracle).abs_()
    misplaced = None
    # A sum is finite only if all its terms are; one that overflows goes the long way for nothing.
    if not (bool(torch.isfinite(error.sum())) and bool(oracle.abs().max() <= torch.finfo(found.dtype).max)):
        finite = torch.isfinite(oracle.to(found.dtype).double())
        wrong_kind = misplaced_in(found, oracle)
        use = finite & torch.isfinite(values)
        error, oracle = error[use], oracle[use]
        misplaced = wrong_kind if bool(wrong_kind.any()) else None
    if not error.numel():
        return {}, misplaced
    index = _bin_index(oracle, found.dtype)
    return (_by_mask if error.is_cuda else _by_count)(index, error, oracle), misplaced


def misplaced_in(found: torch.Tensor, oracle: torch.Tensor) -> torch.Tensor:
    """Where NaN or an infinity stands that the oracle, in the output's type, has not, or is missing."""
    values, rounded = found.double(), oracle.to(found.dtype).double()
    wrong_kind = (torch.isnan(rounded) != torch.isnan(values)) | ((rounded != values) & ~torch.isnan(rounded))
    return torch.where(torch.isfinite(rounded), ~torch.isfinite(values), wrong_kind)


def _by_count(index: torch.Tensor, error: torch.Tensor, wanted: torch.Tensor) -> Bins:
    places = index.numpy()
    count = np.bincount(places, minlength=_BINS)
    squares = np.bincount(places, weights=(error * error).numpy(), minlength=_BINS)
    power = np.bincount(places, weights=(wanted * wanted).numpy(), minlength=_BINS)
    # torch's scatter_reduce takes 50 times as long on a CPU, a masked maximum per bin five times.
    largest = np.zeros(_BINS)
    np.maximum.at(largest, places, error.numpy())
    found: Bins = {}
    for n in np.flatnonzero(count).tolist():
        rms, magnitude = math.sqrt(squares[n] / count[n]), math.sqrt(power[n] / count[n])
        if largest[n] and not _SQUARABLE[0] < largest[n] < _SQUARABLE[1]:
            rms = _rms(error[index == n])
        if n != ZERO_BIN and not _SQUARABLE[0] < magnitude < _SQUARABLE[1]:
            magnitude = _rms(wanted[index == n])
        found[str(n)] = [float(count[n]), rms, float(largest[n]), magnitude]
    return found


def _rms(values: torch.Tensor, n: int | None = None) -> float:
    """The root of the mean square of values, or of `n` among zeros, as large or as small as they may be."""
    peak = torch.linalg.vector_norm(values, math.inf)
    top = float(peak)
    if not top or not math.isfinite(top):
        return top
    # By a tensor: a GPU divides by a number by multiplying with its inverse, infinite for subnormals.
    return top * math.sqrt(float((values / peak).square_().sum()) / (n or values.numel()))


def _by_mask(index: torch.Tensor, error: torch.Tensor, wanted: torch.Tensor) -> Bins:
    """The same on a GPU, where counting into a few bins is slow: all threads wait for the same atomics."""
    found: Bins = {}
    if not index.numel():
        return found
    zero = index == ZERO_BIN
    low, high = (int(v) for v in torch.aminmax(torch.where(zero, index.min(), index)))
    if bool(zero.all()):
        low, high = 1, 0
    for number in (*range(low, high + 1), ZERO_BIN):
        inside = index == number
        n = int(inside.sum())
        if n:
            wrong, right = torch.where(inside, error, 0.0), torch.where(inside, wanted, 0.0)
            found[str(number)] = [float(n), _rms(wrong, n), float(wrong.max()), _rms(right, n)]
    return found


def magnitude(tensors: Iterable[torch.Tensor]) -> float:
    """The largest rms of the floats among tensors; 0 where there are none, or it is no number."""
    floats = (as_real(t.detach()) for t in tensors if t.is_floating_point() or t.is_complex())
    found = max((_rms(t.double()) for t in floats if t.numel()), default=0.0)
    return found if math.isfinite(found) else 0.0


def locate(found: torch.Tensor, oracle: torch.Tensor, allowed: dict[str, float]) -> dict[str, Any]:
    """The element furthest beyond what its bin allows."""
    shape = list(found.shape)
    found64, oracle = as_real(found).reshape(-1).double(), as_real(oracle).reshape(-1)
    limits = torch.full((_BINS,), math.inf, dtype=torch.float64, device=oracle.device)
    for name, value in allowed.items():
        limits[int(name)] = max(value, 1e-300)
    index = _bin_index(torch.nan_to_num(oracle.double()), as_real(found).dtype)
    excess = (found64 - oracle).abs() / limits[index]
    at = int(torch.nan_to_num(excess, nan=math.inf).argmax())
    return {"index": position(at, shape), "expected": _number(oracle[at]), "found": _number(found64[at])}


def position(flat: int, shape: list[int]) -> list[int]:
    """The index of the flat-th element."""
    position = []
    for size in reversed(shape):
        position.append(flat % size)
        flat //= size
    return position[::-1]


def _number(value: torch.Tensor) -> float | str:
    number = float(value)
    return number if math.isfinite(number) else str(number)
