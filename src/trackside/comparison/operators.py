"""What torch's operators do on the way that the oracle, or who asks it, must know of.

Runs in the reference process.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from trackside.comparison.rerounding import HALF_ULP

__all__ = [
    "Arithmetic",
    "flattened",
    "is_coarse",
    "makes_doubles",
    "narrows",
    "overflowed",
    "squares_beyond_float32",
]

# Operators that square inside and take the root again, on a CPU in a wider type than their own.
_ROOTS_OF_SQUARES = {
    torch.ops.aten.std,
    torch.ops.aten.std_mean,
    torch.ops.aten.hypot,
    torch.ops.aten.linalg_vector_norm,
    torch.ops.aten.norm,
    torch.ops.aten._cdist_forward,
    torch.ops.aten._euclidean_dist,
}
# Scores whose last place in float32 is an eighth: exponentials of them, a sum and its logarithm apart, are
# off by as much.
_COARSE = 2.0**20
# The square of what is larger is no float32.
_ROOT_OF_LARGEST = 2.0**64

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

# Operators that multiply and add: what they make infinite of numbers is too large for its type.
_PRODUCTS = {
    torch.ops.aten.mul,
    torch.ops.aten.pow,
    torch.ops.aten.square,
    torch.ops.aten.addcmul,
    torch.ops.aten.mm,
    torch.ops.aten.bmm,
    torch.ops.aten.addmm,
    torch.ops.aten.baddbmm,
    torch.ops.aten.mv,
    torch.ops.aten.dot,
    torch.ops.aten.sum,
}

# Operators that only move or cast what they are given.
_MOVES = {
    torch.ops.aten._to_copy,
    torch.ops.aten.copy_,
    torch.ops.aten.clone,
    torch.ops.aten.detach,
    torch.ops.aten.view,
    torch.ops.aten._unsafe_view,
    torch.ops.aten.t,
    torch.ops.aten.transpose,
    torch.ops.aten.permute,
    torch.ops.aten.expand,
    torch.ops.aten.slice,
    torch.ops.aten.select,
    torch.ops.aten.index_select,
    torch.ops.aten.embedding,
}
_MATRIX_PRODUCTS = {
    torch.ops.aten.mm,
    torch.ops.aten.bmm,
    torch.ops.aten.addmm,
    torch.ops.aten.baddbmm,
}
_CONVOLUTIONS = {torch.ops.aten.convolution, torch.ops.aten.convolution_backward}


class Arithmetic(NamedTuple):
    """What a task computes in, and how."""

    narrow: bool = False
    """In a type of 16 bits or fewer somewhere, or in TF32, whatever its outputs are."""
    derives: bool = False
    """Derivatives: where a function has kinks these jump."""

    def with_call(self, func: Any, args: Any) -> Arithmetic:
        packet = getattr(func, "overloadpacket", None)
        given = [value for one in args for value in (one if isinstance(one, list | tuple) else (one,))]
        narrow = packet not in _MOVES and any(
            isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize < 4
            for value in given
        )
        shortened = (packet in _MATRIX_PRODUCTS and _products_are_short()) or (
            packet in _CONVOLUTIONS and _convolutions_are_short(given)
        )
        name = getattr(packet, "__name__", "")
        return Arithmetic(self.narrow or narrow or shortened, self.derives or "_backward" in name)


def _products_are_short() -> bool:
    """Whether matrix products of float32 may be made of shorter numbers."""
    return torch.get_float32_matmul_precision() != "highest"


def _convolutions_are_short(given: list[Any]) -> bool:
    on_device = any(isinstance(value, torch.Tensor) and value.is_cuda for value in given)
    return on_device and torch.backends.cudnn.allow_tf32


def is_coarse(func: Any, args: Any) -> bool:
    """Whether a softmax has finite scores so large that their rounding is no small part of a weight."""
    if getattr(func, "overloadpacket", None) is not torch.ops.aten._softmax:
        return False
    scores = args[0]
    return bool(((scores.abs() >= _COARSE) & torch.isfinite(scores)).any())


def squares_beyond_float32(func: Any, args: Any) -> bool:
    """Whether an operator takes the root of squares that are no float32."""
    packet = getattr(func, "overloadpacket", None)
    given = [value for value in args if isinstance(value, torch.Tensor) and value.numel()]
    hypotenuse = packet is torch.ops.aten.abs and given and given[0].is_complex()
    if not hypotenuse and packet not in _ROOTS_OF_SQUARES:
        return False
    parts = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in given]
    return any(float(part.abs().max()) > _ROOT_OF_LARGEST for part in parts)


def flattened(func: Any, args: Any, made: Any) -> int:
    """How many finite numbers an operator brought so near to 0, 1 or -1 that float32 has nothing between."""
    packet = getattr(func, "overloadpacket", None)
    if packet not in _VANISHING | _SATURATING or not made.is_floating_point():
        return 0
    limits, size = torch.finfo(torch.float32), made.abs()
    flat = torch.zeros_like(made, dtype=torch.bool)
    if packet in _VANISHING:
        flat |= size < limits.tiny
    if packet in _SATURATING:
        flat |= 1 - size < limits.eps / 2
    # In place, what went in is gone; infinities are masks, and meant to be flat.
    given = args[0] if args[0] is not made else torch.zeros((), device=made.device)
    return int((flat & torch.isfinite(given)).sum())


def overflowed(func: Any, args: Any, made: Any) -> bool:
    """Whether an operator made infinities by multiplying or adding numbers."""
    if getattr(func, "overloadpacket", None) not in _PRODUCTS or not made.is_floating_point():
        return False
    # In place, what went in is gone: it may have been infinite before.
    given = [value for value in args if isinstance(value, torch.Tensor)]
    return (
        bool(torch.isinf(made).any())
        and not any(value is made for value in given)
        and all(bool(torch.isfinite(value).all()) for value in given)
        and all(math.isfinite(value) for value in args if isinstance(value, float))
    )


def makes_doubles(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operator is told to make doubles of narrower floats."""
    doubles = {torch.float64, torch.complex128}
    asked = any(kind in doubles for kind in (*args, *kwargs.values()) if isinstance(kind, torch.dtype))
    given = {v.dtype for v in args if isinstance(v, torch.Tensor) and v.ndim}
    if func is torch.ops.aten.copy_.default:
        return args[0].dtype in doubles and args[1].dtype in HALF_ULP.keys() - doubles
    return bool(given & HALF_ULP.keys() - doubles) and (asked or bool(given & doubles))


def narrows(func: Any, args: Any, made: Any) -> bool:
    """Whether an operator casts to a type of fewer bytes."""
    at = {torch.ops.aten._to_copy.default: 0, torch.ops.aten.copy_.default: 1}.get(func)
    return at is not None and isinstance(made, torch.Tensor) and made.itemsize < args[at].itemsize
