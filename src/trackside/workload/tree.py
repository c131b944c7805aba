"""Nested arguments and outputs as leaves with a plain description, and back.

Runs in workers and in the reference process. Facts of a tensor are read through methods captured at
import, before user code can replace them. Nothing here calls what a value's own class, or the class of that,
can define: it would run beside the clock, before the outputs are copied.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

__all__ = [
    "DTYPES",
    "TensorFacts",
    "address",
    "attributes",
    "build",
    "describe_value",
    "dtype_name",
    "facts_of",
    "flatten",
    "gradient",
    "is_tensor",
    "key_name",
    "leaves",
    "needs_gradient",
    "once",
    "shape_of",
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
_grad = _Base.grad.__get__
_is_conj = _Base.is_conj
_is_neg = _Base.is_neg
_is_nested = _Base.is_nested.__get__
_is_inference = _Base.is_inference
_narrow = torch.Tensor.narrow
_storage_ptr = torch.UntypedStorage.data_ptr
_storage_size = torch.UntypedStorage.nbytes
# Captured too: who puts a class of its own in their place would be taken for them.
_Tensor, _Parameter, _strided = torch.Tensor, torch.nn.Parameter, torch.strided
_class_dict = type.__dict__["__dict__"].__get__
_class_mro = type.__dict__["__mro__"].__get__
_class_name = type.__dict__["__qualname__"].__get__
_class_module = type.__dict__["__module__"].__get__
# By address: a py_object would be asked for its `__class__`.
_generic_dict = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyObject_GenericGetDict", ctypes.pythonapi)
)

DTYPES: dict[str, torch.dtype] = {
    str(d).removeprefix("torch."): d
    for d in vars(torch).values()
    if isinstance(d, torch.dtype) and not str(d).startswith(("torch.q", "torch.bits"))
}

TensorFacts = dict[str, Any]
Within = tuple[str, ...]

# By id: a class of classes could define what `==` and `hash` of its classes do.
_PLAIN = frozenset(map(id, (type(None), bool, int, float, str)))


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def flatten(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Leaves of nested tuples, lists and dicts, each with a path such as `[0]['weights']`."""
    return [(where, leaf) for where, leaf, _within in leaves(value, path)]


def leaves(value: Any, path: str = "", within: Within = ()) -> Iterator[tuple[str, Any, Within]]:
    """As `flatten`, each leaf with the kinds of the containers around it, from the outside in.

    Lists and tuples are both a `sequence`: what a compiled extension returns is a list wherever Python code
    has a tuple. So are the tuples of torch's own functions (torch.topk). One with named fields says which.
    An empty container is a leaf, and the word for it its value.
    """
    kind = type(value)
    sort: str = ""
    items: Sequence[Any] = ()
    if kind is tuple or kind is list:
        sort, items = "sequence", value
    elif issubclass(kind, tuple):
        sort, items = _named_fields(kind), tuple(tuple.__iter__(value))
    elif issubclass(kind, dict):
        # dict.items: a subclass such as a model's output class cannot answer for its contents.
        entries = list(dict.items(value))
        if not entries:
            yield path, "an empty dict", within
        for i, (key, item) in enumerate(entries):
            yield from leaves(item, f"{path}[{key_name(key, i)}]", (*within, "dict"))
        return
    if not sort:
        yield path, value, within
    elif not items:
        yield path, f"an empty {sort}", within
    else:
        for i, item in enumerate(items):
            yield from leaves(item, f"{path}[{i}]", (*within, sort))


def key_name(key: Any, position: int) -> str:
    """A dict's key as a path shows it: by its value where that is plain, else by its type and place."""
    return repr(key) if id(type(key)) in _PLAIN else f"<{_type_name(type(key))} {position}>"


def _named_fields(kind: type) -> str:
    """What sort of sequence a class of tuples is; empty where it has no fields."""
    for base in _class_mro(kind):
        for name, held in _class_dict(base).items():
            if type(name) is not str:
                continue
            if name == "n_sequence_fields":
                return "sequence"
            if name == "_fields" and type(held) is tuple and all(type(field) is str for field in held):
                return f"named tuple ({', '.join(held)})"
    return ""


def _type_name(kind: type) -> str:
    return ".".join(name if type(name) is str else "?" for name in (_class_module(kind), _class_name(kind)))


def attributes(value: Any) -> dict[str, Any]:
    """An object's own attribute dict, whatever its class says about `__dict__`."""
    try:
        found = _generic_dict(id(value), None)
    except AttributeError:
        return {}
    return found if issubclass(type(found), dict) else {}


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of torch's own class: one whose methods are torch's."""
    kind = type(value)
    return kind is _Tensor or kind is _Parameter


def shape_of(value: Any) -> list[int]:
    return list(_size(value))


def gradient(value: Any) -> Any:
    """A tensor's gradient, or None."""
    return _grad(value)


def needs_gradient(value: Any) -> bool:
    return bool(_requires_grad(value))


def once(value: Any) -> Any:
    """The part of a tensor that all others repeat: an expanded one cannot be written to as a whole."""
    if _is_nested(value):
        return value
    for dim, (size, stride) in enumerate(zip(_size(value), _stride(value), strict=True)):
        if stride == 0 and size > 1:
            value = _narrow(value, dim, 0, 1)
    return value


def facts_of(path: str, value: Any) -> TensorFacts:
    """A leaf in plain words; `kind` is `tensor`, `value` or, for anything else, the type's name."""
    kind = type(value)
    if kind is _Tensor or kind is _Parameter:
        layout = _layout(value)
        if layout is not _strided:
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
            "inference": bool(_is_inference(value)),
            "conj": bool(_is_conj(value)),
            "neg": bool(_is_neg(value)),
        }
    if id(kind) in _PLAIN:
        return {"path": path, "kind": "value", "value": describe_value(value)}
    return {"path": path, "kind": _type_name(kind)}


def describe_value(value: Any) -> Any:
    """A plain value as JSON can carry it exactly."""
    return {"float": value.hex()} if type(value) is float else value


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
    if type(value) in (tuple, list, torch.Size):
        return {
            "t": "list" if isinstance(value, list) else "tuple",
            "items": [specify(v, tensors) for v in value],
        }
    if type(value) in (dict, OrderedDict, defaultdict):
        return {"t": "dict", "items": [[describe_value(k), specify(v, tensors)] for k, v in value.items()]}
    if id(type(value)) in _PLAIN:
        return {"t": "value", "v": describe_value(value)}
    if isinstance(value, torch.dtype | torch.device):
        raise TypeError(f"inputs hold a {type(value).__name__}; pass it as a string")
    raise TypeError(
        f"inputs hold a {type(value).__name__}; needed: tensors, numbers, strings, None, nested in "
        "tuples, lists and dicts"
    )
