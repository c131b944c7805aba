"""Nested arguments and outputs as leaves with a plain description, and back.

Runs in workers and in the reference process. Facts of a tensor are read through methods captured at
import, before user code can replace them.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = [
    "DTYPES",
    "TensorFacts",
    "build",
    "describe_value",
    "dtype_name",
    "facts_of",
    "flatten",
    "span_bytes",
    "storage_range",
]

_Base: Any = torch._C.TensorBase
_data_ptr = _Base.data_ptr
_size = _Base.size
_stride = _Base.stride
_element_size = _Base.element_size
_untyped_storage = torch.Tensor.untyped_storage
_dtype = _Base.dtype.__get__
_device = _Base.device.__get__
_layout = _Base.layout.__get__
_requires_grad = _Base.requires_grad.__get__
_is_conj = _Base.is_conj
_is_neg = _Base.is_neg
_storage_ptr = torch.UntypedStorage.data_ptr
_storage_size = torch.UntypedStorage.nbytes

DTYPES: dict[str, torch.dtype] = {
    str(d).removeprefix("torch."): d
    for d in vars(torch).values()
    if isinstance(d, torch.dtype) and not str(d).startswith(("torch.q", "torch.bits"))
}

TensorFacts = dict[str, Any]

_PLAIN = (type(None), bool, int, float, str)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def flatten(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Leaves of nested tuples, lists and dicts, each with a path such as `[0].weights`."""
    kind = type(value)
    # Named tuples, and those that torch's own functions return (torch.topk), which have no `_fields`.
    if kind in (tuple, list) or (issubclass(kind, tuple) and _has_named_fields(kind)):
        return [
            leaf
            for i, item in enumerate(tuple.__iter__(value) if issubclass(kind, tuple) else value)
            for leaf in flatten(item, f"{path}[{i}]")
        ]
    if issubclass(kind, dict):
        # dict.items: a subclass such as a model's output class cannot answer for its contents.
        return [leaf for key, item in dict.items(value) for leaf in flatten(item, f"{path}[{key!r}]")]
    return [(path, value)]


def _has_named_fields(kind: type) -> bool:
    # Not hasattr: a metaclass would have its say, after the clock has stopped.
    return any(
        "_fields" in names or "n_sequence_fields" in names
        for names in (
            type.__dict__["__dict__"].__get__(base) for base in type.__dict__["__mro__"].__get__(kind)
        )
    )


def facts_of(path: str, value: Any) -> TensorFacts:
    """A leaf in plain words; `kind` is `tensor`, `value` or, for anything else, the type's name."""
    kind = type(value)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        layout = _layout(value)
        if layout is not torch.strided:
            return {"path": path, "kind": f"tensor with layout {layout}"}
        shape, stride = tuple(_size(value)), tuple(_stride(value))
        device = _device(value)
        if device.type == "meta":
            return {"path": path, "kind": "tensor on the meta device"}
        storage = _untyped_storage(value)
        return {
            "path": path,
            "kind": "tensor",
            "dtype": dtype_name(_dtype(value)),
            "shape": list(shape),
            "stride": list(stride),
            "device": str(device),
            "span": span_bytes(shape, stride, _element_size(value)),
            "storage": _storage_size(storage),
            "requires_grad": bool(_requires_grad(value)),
            "conj": bool(_is_conj(value)),
            "neg": bool(_is_neg(value)),
        }
    if isinstance(value, _PLAIN) and kind in _PLAIN:
        return {"path": path, "kind": "value", "value": describe_value(value)}
    return {"path": path, "kind": f"{kind.__module__}.{kind.__qualname__}"}


def describe_value(value: Any) -> Any:
    """A plain value as JSON can carry it exactly."""
    return {"float": value.hex()} if isinstance(value, float) else value


def address(value: Any) -> tuple[int, int]:
    """Where a tensor's first element lies, and the start of its storage."""
    return _data_ptr(value), _storage_ptr(_untyped_storage(value))


def storage_range(value: Any) -> tuple[int, int]:
    """Where a tensor's storage begins and ends."""
    storage = _untyped_storage(value)
    start = _storage_ptr(storage)
    return start, start + _storage_size(storage)


def span_bytes(shape: tuple[int, ...], stride: tuple[int, ...], element: int) -> int:
    """Bytes from the first to the last element, which is what a raw copy must take."""
    if any(n == 0 for n in shape):
        return 0
    return (sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) + 1) * element


def build(spec: Any, leaf: Any) -> Any:
    """Rebuild a nested value from `spec`; `leaf(i)` gives the i-th tensor."""
    kind = spec["t"]
    if kind == "tensor":
        return leaf(spec["i"])
    if kind == "value":
        return decode_value(spec["v"])
    if kind == "dict":
        return {decode_value(k): build(item, leaf) for k, item in spec["items"]}
    items = [build(item, leaf) for item in spec["items"]]
    return tuple(items) if kind == "tuple" else items


def decode_value(value: Any) -> Any:
    return float.fromhex(value["float"]) if isinstance(value, dict) else value


def specify(value: Any, tensors: list[torch.Tensor]) -> Any:
    """The inverse of `build`: appends the tensors met to `tensors`.

    Raises:
        TypeError: for a leaf that is neither a tensor nor a plain value.
    """
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"t": "tensor", "i": len(tensors) - 1}
    if isinstance(value, tuple | list):
        return {
            "t": "tuple" if isinstance(value, tuple) else "list",
            "items": [specify(v, tensors) for v in value],
        }
    if isinstance(value, dict):
        return {"t": "dict", "items": [[describe_value(k), specify(v, tensors)] for k, v in value.items()]}
    if type(value) in _PLAIN:
        return {"t": "value", "v": describe_value(value)}
    if isinstance(value, torch.dtype | torch.device):
        raise TypeError(f"inputs hold a {type(value).__name__}; pass it as a string")
    raise TypeError(
        f"inputs hold a {type(value).__name__}; needed: tensors, numbers, strings, None, nested in "
        "tuples, lists and dicts"
    )
