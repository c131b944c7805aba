"""What torch's operators do on the way that the oracle, or who asks it, must know of.

Runs in the reference process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import torch

from trackside.comparison.rerounding import HALF_ULP

__all__ = [
    "Arithmetic",
    "is_coarse",
    "is_shortened",
    "makes_doubles",
    "narrows",
    "overflowed",
    "ranks_nan",
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
# Those that scale before they multiply elements with each other, where a closed form does not: an adjugate,
# normal equations.
_SOLVERS = {
    torch.ops.aten.linalg_inv_ex,
    torch.ops.aten._linalg_solve_ex,
    torch.ops.aten.linalg_lstsq,
    torch.ops.aten.linalg_qr,
    torch.ops.aten._linalg_svd,
    torch.ops.aten._linalg_eigh,
}
# Operators whose answer is an order, or one end of it.
_RANKING = {
    torch.ops.aten.sort,
    torch.ops.aten.argsort,
    torch.ops.aten.topk,
    torch.ops.aten.argmax,
    torch.ops.aten.argmin,
    torch.ops.aten.max,
    torch.ops.aten.min,
    torch.ops.aten.kthvalue,
    torch.ops.aten.median,
    torch.ops.aten.mode,
}
# Scores whose last place in float32 is an eighth: exponentials of them, a sum and its logarithm apart, are
# off by as much.
_COARSE = 2.0**20
# The square of what is larger is no float32.
_ROOT_OF_LARGEST = 2.0**64

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

# Operators that only move or fill, views aside.
_MOVES = {
    getattr(torch.ops.aten, name)
    for name in (
        *(
            "_to_copy",
            "copy_",
            "clone",
            "cat",
            "stack",
            "index",
            "index_select",
            "gather",
            "embedding",
            "flip",
        ),
        *("zeros_like", "ones_like", "empty_like", "full_like", "new_zeros", "new_empty", "zero_", "fill_"),
        *("flip", "repeat", "roll", "constant_pad_nd", "masked_fill", "where"),
    )
}
_SHORTER = ("tf32", "bf16")
_DOUBLES = {torch.float64, torch.complex128}
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
    doubles: bool = False
    """With doubles, as torch's and not as Python's numbers: somebody wants to be as exact as those."""

    def with_call(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Arithmetic:
        packet = getattr(func, "overloadpacket", None)
        given = [value for one in args for value in (one if isinstance(one, list | tuple) else (one,))]
        floats = [v for v in given if isinstance(v, torch.Tensor) and v.is_floating_point()]
        moves = packet in _MOVES or getattr(func, "is_view", False)
        narrow = _is_rounded(packet, floats, kwargs) if moves else any(v.itemsize < 4 for v in floats)
        derives = _goes_backward() or "_backward" in getattr(packet, "__name__", "")
        asked = any(kind in _DOUBLES for kind in (*args, *kwargs.values()) if isinstance(kind, torch.dtype))
        doubles = asked or any(
            isinstance(v, torch.Tensor) and v.ndim and v.dtype in _DOUBLES for v in (*given, *kwargs.values())
        )
        return Arithmetic(
            self.narrow or narrow or is_shortened(func, floats),
            self.derives or derives,
            self.doubles or doubles,
        )


def is_shortened(func: Any, args: Any) -> bool:
    """Whether an operator on float32 may round what it multiplies to fewer bits, TF32's say."""
    packet = getattr(func, "overloadpacket", None)
    if packet in _MATRIX_PRODUCTS:
        return _products_are_short()
    on_device = any(isinstance(value, torch.Tensor) and value.is_cuda for value in args)
    return packet in _CONVOLUTIONS and on_device and _convolutions_are_short()


def _is_rounded(packet: Any, floats: list[torch.Tensor], kwargs: Mapping[str, Any]) -> bool:
    """Whether a cast makes floats of 16 bits or fewer of wider ones."""
    if packet is torch.ops.aten.copy_:
        return len(floats) > 1 and floats[0].itemsize < min(4, floats[1].itemsize)
    kind = kwargs.get("dtype")
    if packet is not torch.ops.aten._to_copy or kind is None or not kind.is_floating_point or not floats:
        return False
    return bool(kind.itemsize < min(4, floats[0].itemsize))


def _goes_backward() -> bool:
    """Whether autograd is at work: derivatives of clamp() and abs() are made of ordinary operators."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def _products_are_short() -> bool:
    """Whether matrix products of float32 may be made of shorter numbers, by torch's older or newer names."""
    return _shortened("", "cuda.matmul", "mkldnn.matmul") or _said(
        lambda: torch.get_float32_matmul_precision() != "highest"
    )


def _convolutions_are_short() -> bool:
    return _shortened("", "cudnn", "cudnn.conv") or _said(lambda: torch.backends.cudnn.allow_tf32)


def _shortened(*places: str) -> bool:
    def shortened(place: str) -> bool:
        return attrgetter(f"{place}.fp32_precision".lstrip("."))(torch.backends) in _SHORTER

    return any(_said(partial(shortened, place)) for place in places)


def _said(ask: Callable[[], bool]) -> bool:
    """What torch answers; who uses the newer names may not ask by the older ones, and some have none."""
    try:
        return ask()
    except (RuntimeError, AttributeError):
        return False


def is_coarse(func: Any, args: Any) -> bool:
    """Whether a softmax has finite scores so large that their rounding is no small part of a weight."""
    if getattr(func, "overloadpacket", None) is not torch.ops.aten._softmax:
        return False
    scores = args[0]
    return bool(((scores.abs() >= _COARSE) & torch.isfinite(scores)).any())


def squares_beyond_float32(func: Any, args: Any) -> bool:
    """Whether an operator takes the root of squares that are no float32, or solves with numbers so large."""
    packet = getattr(func, "overloadpacket", None)
    given = [value for value in args if isinstance(value, torch.Tensor) and value.numel()]
    hypotenuse = packet is torch.ops.aten.abs and given and given[0].is_complex()
    if not hypotenuse and packet not in _ROOTS_OF_SQUARES | _SOLVERS:
        return False
    parts = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in given]
    return any(float(part.abs().max()) > _ROOT_OF_LARGEST for part in parts)


def ranks_nan(func: Any, args: Any) -> bool:
    """Whether an operator puts numbers in order of which some are none: any order is as right."""
    if getattr(func, "overloadpacket", None) not in _RANKING:
        return False
    given = args[0]
    return bool(isinstance(given, torch.Tensor) and given.is_floating_point() and given.isnan().any())


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
    asked = any(kind in _DOUBLES for kind in (*args, *kwargs.values()) if isinstance(kind, torch.dtype))
    given = {v.dtype for v in args if isinstance(v, torch.Tensor) and v.ndim}
    if func is torch.ops.aten.copy_.default:
        return args[0].dtype in _DOUBLES and args[1].dtype in HALF_ULP.keys() - _DOUBLES
    return bool(given & HALF_ULP.keys() - _DOUBLES) and (asked or bool(given & _DOUBLES))


def narrows(func: Any, args: Any, made: Any) -> bool:
    """Whether an operator casts to a type of fewer bytes."""
    at = {torch.ops.aten._to_copy.default: 0, torch.ops.aten.copy_.default: 1}.get(func)
    return at is not None and isinstance(made, torch.Tensor) and made.itemsize < args[at].itemsize
