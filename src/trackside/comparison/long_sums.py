"""Sums in a batch norm, whose terms other code adds in another order, as torch itself does in other layouts.

It adds in pairs where it can, and one term after the other where memory lies otherwise (channels_last).
Sums that a task makes itself are not looked at: in a row they may be as far off as float16 makes their terms.
"""

from __future__ import annotations

from typing import Any

import torch

from trackside.comparison.rerounding import HALF_ULP, LAYOUT, Reround

__all__ = ["summed_otherwise"]

# Sums of so many terms and more are looked at as ones that are added one after the other, up to the most:
# nobody adds more in a row, but in several that are added in turn.
_LONG, _LONGEST = 256, 1 << 15
# What that makes of a sum, beside what is allowed: checks allow 16 times what is made here. By chance half an
# ulp of each partial sum, root of the sum of squares, of which real roundings have 0.58. And what is lost
# again and again, where terms are equal, or small beside what is there already: in full.
_BY_CHANCE, _LOST = 0.1, 1 / 8
_NORMS = {torch.ops.aten.native_batch_norm, torch.ops.aten.cudnn_batch_norm}
# Where each takes the gradients, and the norm's own inputs.
_DERIVATIVES = {
    torch.ops.aten.native_batch_norm_backward: (0, 1),
    torch.ops.aten.cudnn_batch_norm_backward: (1, 0),
    torch.ops.aten.batch_norm_backward: (0, 1),
}


def summed_otherwise(func: Any, args: Any, values: tuple[Any, ...], reround: Reround) -> tuple[Any, ...]:
    """What other code makes of a norm's results, or of its derivative's, if their sums are long ones.

    Most of such a sum is taken away again, and what is left may be small beside the sum's rounding.
    """
    operator = getattr(func, "overloadpacket", None)
    if operator in _NORMS and args[5] and _is_long(values[0]):
        return _norm(values, args, reround)
    # cuDNN's is there in training only, and takes no word about it.
    training = operator is torch.ops.aten.cudnn_batch_norm_backward or (len(args) > 7 and args[7])
    if operator in _DERIVATIVES and training and _is_long(args[0]):
        grads, inputs = (args[place] for place in _DERIVATIVES[operator])
        return _norm_backward(values, grads, inputs, reround)
    return values


def _is_long(value: Any) -> bool:
    """Whether these are floats of which a norm adds up many."""
    return (
        isinstance(value, torch.Tensor)
        and value.dtype in LAYOUT
        and value.numel() >= _LONG * max(1, value.shape[1])
    )


def _norm(values: tuple[Any, ...], args: Any, reround: Reround) -> tuple[Any, ...]:
    """Output, mean and inverse deviation of a batch norm in training, over all dimensions but the second.

    And its running statistics, in their place.
    """
    made, mean, inverse = values[:3]
    inputs, weight, _, running_mean, running_var, _, momentum, _ = args
    wide, _, shape, count = _by_channel(inputs)
    at, by = mean.to(wide.dtype).reshape(shape), inverse.to(wide.dtype).reshape(shape)
    off_mean = _off_in_a_row(wide, shape, reround) / count * reround.chance(at)
    squares = ((wide - at) * by).square()
    off_squares = _off_in_a_row(squares, shape, reround) / count * reround.chance(by)
    off_inverse = 1 - off_squares / 2
    moved = (wide - at - off_mean) * by * off_inverse - (wide - at) * by
    if weight is not None:
        moved = moved * weight.reshape(shape)
    for running, off in ((running_mean, off_mean), (running_var, off_squares / by.square())):
        if running is not None:
            running.add_((momentum * off).reshape(running.shape).to(running.dtype))
    return (
        made + moved.to(made.dtype),
        mean + off_mean.reshape(mean.shape).to(mean.dtype),
        inverse * off_inverse.reshape(inverse.shape).to(inverse.dtype),
        *values[3:],
    )


def _norm_backward(
    values: tuple[Any, ...], grads: torch.Tensor, inputs: torch.Tensor, reround: Reround
) -> tuple[Any, ...]:
    """Gradients of its input, weight and bias."""
    made, weight, bias = values[:3]
    wide, dims, shape, count = _by_channel(inputs)
    spread, mean = torch.std_mean(wide, dims, keepdim=True)
    normal = (wide - mean) / spread.clamp_min(torch.finfo(torch.float32).tiny)
    grads = grads.to(wide.dtype)
    off_bias = _off_in_a_row(grads, shape, reround) * reround.chance(mean)
    off_weight = _off_in_a_row(grads * normal, shape, reround) * reround.chance(spread)
    if isinstance(made, torch.Tensor):
        # By how much the incoming gradient is multiplied: what is taken away from it is multiplied likewise.
        power = grads.square().sum(dims, keepdim=True)
        left = grads - grads.mean(dims, keepdim=True) - normal * (grads * normal).mean(dims, keepdim=True)
        least = torch.finfo(torch.float32).eps ** 2 * power + torch.finfo(torch.float32).tiny
        times = (made.to(wide.dtype) * left).sum(dims, keepdim=True)
        times /= left.square().sum(dims, keepdim=True).clamp_min(least)
        made = made - (times * (off_bias + normal * off_weight) / count).to(made.dtype)
    # Of a norm without weights, or on inputs that nobody asks about, there are fewer.
    moved = (
        one + off.reshape(one.shape).to(one.dtype) if isinstance(one, torch.Tensor) else one
        for one, off in ((weight, off_weight), (bias, off_bias))
    )
    return made, *moved, *values[3:]


def _by_channel(inputs: torch.Tensor) -> tuple[torch.Tensor, list[int], torch.Size, int]:
    """Inputs, wide enough; over which dimensions they are added, the shape that leaves, and how many each."""
    dims = [d for d in range(inputs.ndim) if d != 1]
    shape = torch.Size([inputs.shape[1] if d == 1 else 1 for d in range(inputs.ndim)])
    return (
        inputs.to(torch.promote_types(inputs.dtype, torch.float32)),
        dims,
        shape,
        inputs.numel() // max(1, inputs.shape[1]),
    )


def _off_in_a_row(terms: torch.Tensor, shape: torch.Size, reround: Reround) -> torch.Tensor:
    """How far off each channel's sum may be whose terms are added one after the other, as they lie.

    Whole numbers are added exactly.
    """
    if bool((terms == terms.round()).all()):
        return terms.new_zeros(shape)
    step = HALF_ULP[terms.dtype]
    off = torch.zeros(terms.shape[1], dtype=torch.float64, device=terms.device)
    lost = torch.zeros_like(off)
    for row in torch.split(terms.movedim(1, -1).reshape(-1, terms.shape[1]), _LONGEST):
        partial = row.double().cumsum(0)
        off += partial.square().sum(0)
        before = (partial - row).to(terms.dtype)
        lost += ((before + row).double() - (before.double() + row.double())).sum(0)
    off = reround.times * (_BY_CHANCE * step * off.sqrt() + _LOST * lost.abs())
    return off.to(terms.dtype).reshape(shape)
