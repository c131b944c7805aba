"""The least that an operator has to compute and to move, by the shapes and types it was called with.

Bytes count every input once and what it makes once: what a cache saves is not known, nor what a kernel reads
twice. An operator that is not listed has no such number; a number is never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from trackside.trace.model import OpInputs

__all__ = ["Work", "work_of"]

_BYTES = {
    "double": 8,
    "float": 4,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
    "long int": 8,
    "int": 4,
    "short int": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
}
_KINDS = {
    "double": "fp64",
    "float": "fp32",
    "c10::Half": "fp16",
    "c10::BFloat16": "bf16",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
    "signed char": "int8",
}
_POINTWISE_NAMES = """
abs add addcdiv addcmul bitwise_and bitwise_or bitwise_xor ceil clamp clamp_max clamp_min clone contiguous
copy cos cumsum div elu elu_backward eq erf exp flip floor ge gelu gelu_backward gt hardswish
hardswish_backward hardtanh le leaky_relu leaky_relu_backward lerp log log1p logical_and logical_not
logical_or lt masked_fill maximum minimum mish mish_backward mul native_dropout_backward ne neg pow
reciprocal relu remainder roll round rsqrt rsub sigmoid sigmoid_backward sign silu silu_backward sin
softplus softplus_backward sqrt square sub tanh tanh_backward threshold threshold_backward where
_log_softmax _log_softmax_backward_data _softmax _softmax_backward_data
"""
_POINTWISE = frozenset(_POINTWISE_NAMES.split())
_FILLS = frozenset(("fill", "zero", "normal", "uniform", "bernoulli", "random"))
_REDUCE_NAMES = """
all amax amin any argmax argmin count_nonzero linalg_vector_norm logsumexp max mean min norm prod std sum var
var_mean
"""
_REDUCES = frozenset(_REDUCE_NAMES.split())
# What they make is as large as their first input.
_NORMS = (
    *("native_layer_norm", "native_group_norm", "native_batch_norm", "_fused_rms_norm"),
    "native_layer_norm_backward",
)
_GENERATED = ("triton_poi_", "triton_per_", "triton_red_")
# Where an operator says whether a mask leaves half of the scores out.
_CAUSAL = {
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_flash_attention_for_cpu": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_flash_attention_backward": 11,
    "_scaled_dot_product_flash_attention_for_cpu_backward": 7,
    "_scaled_dot_product_efficient_attention_backward": 11,
    "_scaled_dot_product_cudnn_attention_backward": 14,
}

Shape = tuple[int, ...]


class Work(NamedTuple):
    """Of one call."""

    flops: float
    """0 for what only moves bytes, whatever it computes on the way."""
    bytes: float
    dtype: str
    """What its products are computed from: `fp32`, `bf16`; empty without products."""


def work_of(name: str, inputs: OpInputs) -> Work | None:
    """None where it is not known."""
    if name.startswith(_GENERATED):
        # The compiler hands over what is read and what is written.
        return _moving(sum(_sizes(inputs)))
    if not name.startswith("aten::"):
        return None
    short = name.removeprefix("aten::")
    if short in _CAUSAL:
        return _attention(short, inputs)
    if (product := _PRODUCTS.get(short)) is not None:
        return product(inputs)
    plain = short.removesuffix("_")
    if plain in _POINTWISE:
        return _pointwise(inputs)
    if plain in _FILLS:
        return _moving(sum(_sizes(inputs)[:1]))
    if plain in _REDUCES:
        return _moving(sum(_sizes(inputs)))
    if short in _NORMS:
        return _moving(sum(_sizes(inputs)) + sum(_sizes(inputs)[:1]))
    if short == "embedding" and len(inputs.shapes) > 1 and inputs.types[0] in _BYTES:
        rows = prod(inputs.shapes[1]) * inputs.shapes[0][-1] * _BYTES[inputs.types[0]]
        return _moving(2 * rows + _size(inputs, 1))
    return None


def _moving(count: float) -> Work | None:
    return Work(0.0, float(count), "") if count else None


def _size(inputs: OpInputs, place: int) -> int:
    if place >= len(inputs.shapes) or inputs.types[place] not in _BYTES:
        return 0
    return prod(inputs.shapes[place]) * _BYTES[inputs.types[place]]


def _sizes(inputs: OpInputs) -> list[int]:
    """Bytes of each tensor."""
    return [_size(inputs, place) for place, kind in enumerate(inputs.types) if kind in _BYTES]


def _pointwise(inputs: OpInputs) -> Work | None:
    """What it makes is as large as the inputs are together, broadcast."""
    tensors = [
        (shape, kind) for shape, kind in zip(inputs.shapes, inputs.types, strict=False) if kind in _BYTES
    ]
    if not tensors:
        return None
    made = _broadcast([shape for shape, _ in tensors])
    if made is None:
        return None
    return _moving(sum(_sizes(inputs)) + prod(made) * _BYTES[tensors[0][1]])


def _broadcast(shapes: Sequence[Shape]) -> Shape | None:
    length = max(map(len, shapes))
    made = []
    for place in range(-length, 0):
        sizes = {shape[place] for shape in shapes if len(shape) >= -place} - {1}
        if len(sizes) > 1:
            return None
        made.append(next(iter(sizes), 1))
    return tuple(made)


def _product(left: int, right: int, turned: bool = False) -> Callable[[OpInputs], Work | None]:
    """A product of two inputs; the second of a `linear` is turned."""

    def found(inputs: OpInputs) -> Work | None:
        if len(inputs.shapes) <= max(left, right) or inputs.types[left] not in _BYTES:
            return None
        a, b = inputs.shapes[left], inputs.shapes[right]
        if turned and len(b) == 2:
            b = (b[1], b[0])
        if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
            return None
        size = _BYTES[inputs.types[left]]
        made = (*a[:-1], b[-1])
        moved = size * prod(made) + _size(inputs, left) + _size(inputs, right)
        if left > 0:
            moved += _size(inputs, 0)
        return Work(2.0 * prod(made) * a[-1], float(moved), _KINDS.get(inputs.types[left], ""))

    return found


def _attention(name: str, inputs: OpInputs) -> Work | None:
    backward = name.endswith("_backward")
    first = 1 if backward else 0
    if len(inputs.shapes) < first + 3 or any(len(shape) != 4 for shape in inputs.shapes[first : first + 3]):
        return None
    query, key, value = inputs.shapes[first : first + 3]
    batch, heads, rows, size = query
    columns = key[2]
    flops = 2.0 * batch * heads * rows * columns * (size + value[3])
    place = _CAUSAL[name]
    if place < len(inputs.values) and inputs.values[place] == "True":
        flops /= 2
    made = batch * heads * rows * value[3] * _BYTES.get(inputs.types[first], 0)
    moved = sum(_size(inputs, place) for place in range(first, first + 3)) + made
    # Backward computes the scores again, and two products for each of forward's.
    return Work(
        flops * (2.5 if backward else 1.0),
        float(moved * (2 if backward else 1)),
        _KINDS.get(inputs.types[first], ""),
    )


def _numbers(inputs: OpInputs, place: int) -> list[int]:
    text = inputs.values[place] if place < len(inputs.values) else ""
    try:
        return [int(one) for one in text.strip("[]").split(",")] if text.strip("[]") else []
    except ValueError:
        return []


def _convolution(inputs: OpInputs) -> Work | None:
    """`input, weight, bias, stride, padding, dilation, transposed, output_padding, groups`."""
    if len(inputs.shapes) < 9 or inputs.types[0] not in _BYTES:
        return None
    image, weight = inputs.shapes[:2]
    kernel, spatial = weight[2:], image[2:]
    stride, padding, dilation = (_numbers(inputs, place) for place in (3, 4, 5))
    if not kernel or any(len(one) != len(kernel) for one in (spatial, stride, padding, dilation)):
        return None
    if inputs.values[6] == "True":
        # Each input element meets every weight of its channel.
        groups = int(inputs.values[8])
        flops = 2.0 * prod(image) * weight[1] * prod(kernel)
        made = (image[0], weight[1] * groups)
        size = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(spatial, stride, padding, dilation, kernel, strict=True)
        ]
    else:
        size = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, s, p, d, k in zip(spatial, stride, padding, dilation, kernel, strict=True)
        ]
        made = (image[0], weight[0])
        flops = 2.0 * prod(made) * prod(size) * weight[1] * prod(kernel)
    moved = sum(_sizes(inputs)[:3]) + prod(made) * prod(size) * _BYTES[inputs.types[0]]
    return Work(flops, float(moved), _KINDS.get(inputs.types[0], ""))


def _convolution_backward(inputs: OpInputs) -> Work | None:
    """`grad, input, weight, bias_sizes`, then as forward's from `stride` on, and what it makes."""
    if len(inputs.shapes) < 11 or inputs.types[0] not in _BYTES:
        return None
    grad, image, weight = inputs.shapes[:3]
    wanted = [one.strip() == "True" for one in inputs.values[10].strip("[]").split(",")]
    if len(wanted) != 3 or len(weight) < 3:
        return None
    once = 2.0 * prod(image if inputs.values[7] == "True" else grad) * weight[1] * prod(weight[2:])
    moved = sum(_sizes(inputs)[:3]) + wanted[0] * _size(inputs, 1) + wanted[1] * _size(inputs, 2)
    return Work(once * sum(wanted[:2]), float(moved), _KINDS.get(inputs.types[0], ""))


_PRODUCTS: dict[str, Callable[[OpInputs], Work | None]] = {
    "mm": _product(0, 1),
    "bmm": _product(0, 1),
    "addmm": _product(1, 2),
    "_addmm_activation": _product(1, 2),
    "baddbmm": _product(1, 2),
    "_scaled_mm": _product(0, 1),
    "_int_mm": _product(0, 1),
    "linear": _product(0, 1, turned=True),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}
