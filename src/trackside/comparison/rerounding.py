"""Results of arithmetic as other code in the same types may have them: rounded another way, each time anew.

Runs in the reference process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["HALF_ULP", "LAYOUT", "Reround", "rerounded", "settled_otherwise"]

HALF_ULP = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.complex128: 2.0**-53,
    torch.complex64: 2.0**-24,
}

# Odd, with bits all over: 2**64 over the golden ratio, and the first multiplier of splitmix64, as int64.
_MIX, _MIX_AGAIN = -7046029254386353131, -4658895280553007687
# What fits into 24 bits came about exactly, but for one in 2**29: a constant, a half, a copied float32.
_BEYOND_FLOAT32 = (1 << 29) - 1
# The whole number of the same size and the bits of the mantissa.
LAYOUT = {
    torch.float64: (torch.int64, 52),
    torch.float32: (torch.int32, 23),
    torch.float16: (torch.int16, 10),
    torch.bfloat16: (torch.int16, 7),
}

# Operators whose results come near to one and never reach it, but for rounding.
_SETTLING = {
    torch.ops.aten._softmax,
    torch.ops.aten.sigmoid,
    torch.ops.aten.sigmoid_,
    torch.ops.aten.tanh,
    torch.ops.aten.tanh_,
    torch.ops.aten.erf,
}


@dataclass(frozen=True)
class Reround:
    """What makes results of the baseline's own arithmetic other ones that are as right."""

    coarsest: int
    more: int
    salt: int

    @property
    def times(self) -> float:
        """What rounding makes."""
        return 2.0**self.more

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        return _off_by_rounding(value, self.coarsest, self.more, self.salt)

    def chance(self, value: torch.Tensor) -> torch.Tensor:
        """A number from -1 to 1 for each of these; the same for the same."""
        layout, _ = LAYOUT[value.dtype]
        whole = value.contiguous().view(layout).to(torch.int64)
        mixed = (whole * _MIX) ^ self.salt
        mixed = (mixed ^ (mixed >> 29)) * _MIX_AGAIN
        # Not in 16 bits: there is no number so large.
        return ((mixed >> 40).double() / 2.0**23).to(value.dtype).reshape(value.shape)


def settled_otherwise(func: Any, args: Any, value: Any, reround: Reround) -> Any:
    """What other code makes of exponentials, of numbers that are rounded themselves.

    Attention that keeps only the logarithm of each row's sum has weights exp(s - log) again in its backward
    pass, off by what float32 rounds the logarithm: 6 % where scores are a million. And a one that a result
    only comes near to is a rounded one: gradients that are nothing in the baseline's order of operations are
    in others what rounding leaves of large terms.
    """
    operator = getattr(func, "overloadpacket", None)
    if operator not in _SETTLING or not isinstance(value, torch.Tensor) or value.dtype not in LAYOUT:
        return value
    if operator is torch.ops.aten._softmax and args[0].numel():
        scores = args[0].masked_fill(torch.isinf(args[0]), 0.0).abs().amax(dim=args[1], keepdim=True)
        return value * (1 + reround.times * HALF_ULP[args[0].dtype] * scores * reround.chance(value))
    one = value.abs() == 1
    return torch.where(one, value * (1 - reround.times * HALF_ULP[value.dtype]), value)


def rerounded(value: torch.Tensor, bits: int, salt: int) -> torch.Tensor:
    """Doubles with other last bits, a hash of those before them.

    Equal values stay equal and what is copied is not moved again, so that no operator needs to be known.
    Exact values are left alone: half a unit off, floor() of a whole number would be another.
    """
    real = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    real = real.resolve_neg().contiguous()
    whole, last = real.view(torch.int64), (1 << bits) - 1
    # Blocks begin elsewhere in every draw, as below.
    shift = (salt >> 8) & last
    wide = whole + shift
    mixed = ((wide >> bits) & ((1 << (52 - bits)) - 1)) * _MIX + salt
    mixed = (mixed ^ (mixed >> 29)) * _MIX_AGAIN
    moved = ((wide & ~last) | ((mixed >> 32) & last)) - shift
    exact = ((whole & _BEYOND_FLOAT32) == 0) | ((real == real.round()) & (real.abs() < 2.0**53))
    made = torch.where(exact, whole, moved).view(torch.float64)
    return torch.view_as_complex(made) if value.is_complex() else made


def _off_by_rounding(value: torch.Tensor, coarsest: int, more: int, salt: int) -> torch.Tensor:
    """One value in four with another last bit: off by 0.35 units rms, where rounding makes it 0.29.

    The last bit is the type's, or that of a mantissa of `coarsest` bits if that is fewer; and `more` before
    it. A hash decides, so that equal values stay equal and what is copied is not moved again. Whole numbers
    are exact, and what is not finite is left alone.
    """
    real = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    real = real.resolve_neg().contiguous()
    layout, mantissa = LAYOUT[real.dtype]
    whole = real.view(layout)
    bits = min(mantissa - 1, 1 + more + max(0, mantissa - coarsest))
    # Of 16 bits so few mantissas are left that the exponent has a say: else a sum's terms are moved alike.
    hashed = mantissa if mantissa - bits > 16 else 8 * real.itemsize - 1
    last = (1 << bits) - 1
    # Blocks begin elsewhere in every draw: round numbers, at which ties and thresholds are, would be bounds.
    shift = (salt >> 8) & last
    wide = whole.to(torch.int64) + shift
    mixed = ((wide >> bits) & ((1 << (hashed - bits)) - 1)) * _MIX + salt
    mixed = (mixed ^ (mixed >> 29)) * _MIX_AGAIN
    moved = (((wide & ~last) | ((mixed >> 32) & last)) - shift).to(layout)
    exact = ~torch.isfinite(real) | ((real == real.round()) & (real.abs() < 2.0**mantissa))
    # Below the first block there is nothing but zero.
    exact |= real.abs() < 2.0 ** (bits - mantissa) * torch.finfo(real.dtype).smallest_normal
    made = torch.where(exact | (((mixed >> 48) & 3) != 0), whole, moved).view(real.dtype)
    return torch.view_as_complex(made) if value.is_complex() else made
