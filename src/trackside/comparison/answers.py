"""What workers answer, and whether it can be used: it comes from candidates, and may be anything."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from trackside.records.errors import TracksideError

__all__ = [
    "REPORT",
    "Times",
    "bytes_held",
    "read_leaves",
    "read_times",
    "well_formed",
]

REPORT = "please report this as a defect, with the two files"

_ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "complex128": 16,
    "complex64": 8,
    "complex32": 4,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
}

# Eleven days: nothing that anybody waits for.
_LONGEST_NS = 1e15

# What an answer must hold; `calls` is taken apart where it is used.
_ANSWERS: dict[str, dict[str, Any]] = {
    "load": {"has_state": bool, "borrows_setup": bool},
    "setup": {"leaves": dict},
    "adopt": {"adopted": bool},
    "state_back": {"digests": dict, "unseen": dict},
    "matmul": {"flops_per_s": float, "dtype": str},
    "facts": {"flags": dict, "replaced": list, "hooks": list, "refused": list, "device_peak": int},
}


def well_formed(op: str, answer: dict[str, Any]) -> bool:
    """Whether an answer has the fields and types that our own worker gives it."""
    raised = answer.get("raised")
    if raised is not None:
        words = isinstance(raised, dict) and all(
            isinstance(raised.get(k), str) for k in ("type", "message", "where")
        )
        return words and isinstance(raised.get("memory", False), bool)
    return (
        all(name in answer and isinstance(answer[name], kind) for name, kind in _ANSWERS.get(op, {}).items())
        and all(
            isinstance(item, str)
            for name in ("replaced", "hooks", "refused")
            for item in answer.get(name) or []
        )
        and (op != "state_back" or all(_is_digest(value) for value in answer["digests"].values()))
    )


class Times(NamedTuple):
    """What a worker says of each call of a slot."""

    ns: list[float]
    host: list[int]
    hooks: list[str]
    bent: list[int]
    """Inputs whose tensors were left with another shape."""
    enqueued_ns: int
    late_ns: list[int]
    waited: list[int]


def read_times(answer: dict[str, Any], count: int, paced: bool) -> Times:
    """What an answer to `calls` says of `count` calls; KeyError, TypeError, ValueError where it is bad."""
    ns = [float(t) for t in answer["ns"]]
    host = [int(t) for t in answer["host"]]
    hooks = [str(h) for h in answer["hooks"]]
    bent = [int(i) for i in answer["bent"]]
    enqueued, late = int(answer["enqueued"]), [int(t) for t in answer["late"]]
    waited = [int(bool(t)) for t in answer["waited"]]
    if len(ns) != count or len(host) != count or not all(0 < t < _LONGEST_NS for t in ns):
        raise ValueError("times")
    if len(late) != (count if paced else 0) or len(waited) not in (0, count):
        raise ValueError("paced calls")
    if not all(0 <= t < _LONGEST_NS for t in (*host, *late, enqueued)):
        raise ValueError("host's times")
    return Times(ns, host, hooks, bent, enqueued, late, waited)


def read_leaves(
    answer: dict[str, Any], count: int, capacity: int, from_baseline: bool
) -> list[list[dict[str, Any]]]:
    """The outputs of each of `count` calls, every fact checked; raises what is wrong with them."""
    found: list[list[dict[str, Any]]] = []
    for entry in answer["leaves"]:
        facts = found[-1] if entry == "same" else entry
        for fact in facts:
            if from_baseline:
                _see_type(fact)
            _validate(fact, capacity)
        found.append(facts)
    if len(found) != count:
        raise ValueError("count")
    return found


def _is_digest(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 4
        and all(type(number) is float for number in value[:3])
        and isinstance(value[3], str)
    )


def _see_type(fact: dict[str, Any]) -> None:
    """Raise an error about the baseline where its output's type is none that can be read as numbers."""
    if fact["kind"] == "tensor" and fact["dtype"] not in _ITEM_BYTES:
        raise TracksideError(
            "workload",
            f"the baseline's output {fact['path']} is a tensor of {fact['dtype']}; needed: floats, complex "
            "numbers, integers of whole bytes or booleans",
            "return such a tensor from `run`; of a quantised one `.int_repr()` or `.dequantize()`",
        )


def _validate(fact: Any, capacity: int) -> None:
    """Facts come from the candidate's process: types and bounds are checked before anyone uses them."""
    if not isinstance(fact, dict) or not isinstance(fact["path"], str) or not isinstance(fact["kind"], str):
        raise TypeError("leaf")
    within = fact.get("within", [])
    if not isinstance(within, list) or not all(isinstance(kind, str) for kind in within):
        raise TypeError("within")
    if fact["kind"] == "value":
        value = fact["value"]
        if isinstance(value, dict):
            try:
                float.fromhex(value["float"])
            except OverflowError as error:
                raise ValueError("value") from error
        elif not isinstance(value, str | int | float | bool | None):
            raise TypeError("value")
    if fact["kind"] != "tensor":
        return
    if fact["copied"] is not True and fact["copied"] is not False:
        raise TypeError("copied")
    if fact["copied"] and fact["span"] and "offset" not in fact:
        raise ValueError("place")
    sizes = [*fact["shape"], *fact["stride"], fact["span"], fact["storage"]]
    if not all(isinstance(n, int) and n >= 0 for n in sizes) or len(fact["shape"]) != len(fact["stride"]):
        raise ValueError("sizes")
    if not isinstance(fact["device"], str) or fact["dtype"] not in _ITEM_BYTES:
        raise TypeError("dtype")
    last = sum((n - 1) * step for n, step in zip(fact["shape"], fact["stride"], strict=True)) + 1
    if fact["span"] != (0 if 0 in fact["shape"] else last * _ITEM_BYTES[fact["dtype"]]):
        raise ValueError("span")
    if "offset" in fact and not (
        isinstance(fact["offset"], int)
        and fact["offset"] % _ITEM_BYTES[fact["dtype"]] == 0
        and fact["offset"] >= 0
        and fact["offset"] + fact["span"] <= capacity
    ):
        raise ValueError("offset")


def bytes_held(fact: dict[str, Any]) -> int:
    """What a leaf's elements take, without the gaps of a strided view; shared ones count once."""
    if fact["kind"] != "tensor":
        return 0
    return int(min(fact["span"], math.prod(fact["shape"]) * _ITEM_BYTES[fact["dtype"]]))
