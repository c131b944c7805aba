"""Torch's execution trace: what operators were called with in a step, given to those of another trace."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from trackside.trace.columns import shape_of
from trackside.trace.model import Ints, Kind, OpInputs, Trace
from trackside.trace.steps import Steps

__all__ = ["Calls", "read_calls", "with_inputs"]

_NODE = re.compile(r'\s*"id": (\d+), "name": "(.*)", "ctrl_deps": \d+,$')
_INPUTS = re.compile(r'\s*"inputs": (\{.*\}),$')
_NUMBER = r'\{"name": "%s", "type": "u?int64", "value": (-?\d+)\}'
_SCOPE, _THREAD = re.compile(_NUMBER % "scope"), re.compile(_NUMBER % "tid")
# A range of `record_function`, which is no operator.
_USER_SCOPE = "7"
# How the profiler calls what is no tensor; of a list that may lack some it says nothing.
_SCALAR = {"Int": "Scalar", "Double": "Scalar", "Bool": "Scalar"}
_LIST, _MAY_LACK, _NO_TENSOR = "GenericList[", "Tensor?[]", "Tensor(nullptr (uninitialized))"
_NOTHING = OpInputs((), (), ())
# A part of the calls that is laid around a step has this share of it at least; so many parts are tried.
_LEAST_PART, _TRIES = 0.5, 16
# Of the last ones some may lack what they were in, which had not ended.
_CUT = 16


class Calls(NamedTuple):
    """The operators that one thread called in a step, in order."""

    names: tuple[str, ...]
    inputs: tuple[OpInputs, ...]


def read_calls(path: Path, steps: int) -> list[Calls]:
    """Those of each thread in the last of so many like steps. What cannot be read has no inputs.

    Line by line: names stand in the file as they are, quotes and all, and make it no JSON.
    """
    threads: defaultdict[str, list[tuple[int, str, OpInputs]]] = defaultdict(list)
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, name, text, thread, may_lack in _nodes(file):
            threads[thread].append((number, name, _inputs(text, may_lack)))
    found = []
    for rows in threads.values():
        rows.sort(key=lambda row: row[0])
        last = rows[len(rows) * (steps - 1) // steps :]
        found.append(Calls(tuple(name for _, name, _ in last), tuple(inputs for _, _, inputs in last)))
    return found


def with_inputs(trace: Trace, steps: Steps, calls: Sequence[Calls], by_time: bool = False) -> Trace:
    """The trace, its operators with what they were called with in another step.

    Where those of a step are not among the calls in this order, the first of a name is the first there as
    long as both have as many of it; else it has inputs only if all of that name had the same ones.

    Args:
        by_time: whether the calls begin anywhere in a step. Then they are laid around it first, where they
            fit in one place only.
    """
    numbers: dict[OpInputs, int] = {}
    tables = [_Table(trace, one, numbers, by_time) for one in calls]
    detail = trace.detail.copy()
    ops = trace.of(Kind.OP)
    for lane in np.unique(trace.lane[ops]).tolist():
        own = ops[trace.lane[ops] == lane]
        starts = trace.start[own]
        bounds = zip(np.searchsorted(starts, steps.begin), np.searchsorted(starts, steps.end), strict=True)
        for first, last in bounds:
            rows = own[first:last]
            if len(rows) and tables:
                best = max(tables, key=lambda table: table.alike(trace.name[rows]))
                detail[rows] = best.numbers_for(trace.name[rows])
    return replace(trace, detail=detail, inputs=list(numbers))


class _Table:
    """A thread's calls, by the numbers that names and inputs have in a trace."""

    def __init__(self, trace: Trace, calls: Calls, numbers: dict[OpInputs, int], by_time: bool) -> None:
        self._by_time = by_time
        names = {name: number for number, name in enumerate(trace.names)}
        self._names = np.array([names.get(name, -1) for name in calls.names], np.int64)
        self._text = self._names.tobytes()
        self._inputs = np.array(
            [numbers.setdefault(one, len(numbers)) if one.types else -1 for one in calls.inputs], np.int64
        )
        self._by_name: dict[int, Ints] = {
            name: self._inputs[self._names == name] for name in np.unique(self._names).tolist() if name >= 0
        }

    def alike(self, names: Ints) -> int:
        """How many of these names were called here as well."""
        found, counts = np.unique(names, return_counts=True)
        return sum(
            min(count, len(self._by_name.get(name, ())))
            for name, count in zip(found.tolist(), counts.tolist(), strict=True)
        )

    def _place(self, names: Ints) -> int | None:
        """Where these names are called one after the other."""
        return next(_aligned(self._text, names.astype(np.int64).tobytes(), self._names.itemsize), None)

    def _turned(self, names: Ints) -> tuple[Ints, Ints] | None:
        """Places among the names of a step that comes again and again, and what was called there with what.

        The calls begin and end anywhere in it, so part of them is laid around the step as around a ring.
        """
        ring, size = np.concatenate([names, names]).astype(np.int64).tobytes(), self._names.itemsize
        known = len(self._names) - _CUT
        for first in range(0, known, max(1, known // _TRIES)):
            length = min(len(names), known - first)
            if length < _LEAST_PART * len(names):
                return None
            part = self._names[first : first + length].tobytes()
            places = _aligned(ring, part, size)
            at = next(places, None)
            if at is not None and next(places, at + len(names)) == at + len(names):
                return (at + np.arange(length)) % len(names), self._inputs[first : first + length]
        return None

    def numbers_for(self, names: Ints) -> Ints:
        place = self._place(names)
        if place is not None:
            return self._inputs[place : place + len(names)]
        turned = self._turned(names) if self._by_time else None
        if turned is None:
            return self._by_count(names)
        found = np.full(len(names), -1, np.int64)
        found[turned[0]] = turned[1]
        return found

    def _by_count(self, names: Ints) -> Ints:
        found = np.full(len(names), -1, np.int64)
        for name in np.unique(names).tolist():
            places = np.flatnonzero(names == name)
            here = self._by_name.get(name)
            if here is None:
                continue
            if len(here) == len(places):
                found[places] = here
            elif (here == here[0]).all():
                found[places] = here[0]
        return found


def _aligned(text: bytes, wanted: bytes, size: int) -> Iterator[int]:
    """Where rows of so many bytes stand among others."""
    at = text.find(wanted)
    while at >= 0:
        if at % size == 0:
            yield at // size
        at = text.find(wanted, at + 1)


def _nodes(lines: Iterator[str]) -> Iterator[tuple[int, str, str, str, bool]]:
    """Each operator's number in the order of calls, its name, inputs as text, thread.

    At last whether a list of tensors among its inputs may lack some.
    """
    number, name, inputs = -1, "", ""
    for line in lines:
        if (node := _NODE.match(line)) is not None:
            number, name, inputs = int(node[1]), node[2], ""
        elif (given := _INPUTS.match(line)) is not None:
            inputs = given[1]
        elif number >= 0 and (thread := _THREAD.search(line)) is not None:
            scope = _SCOPE.search(line)
            if scope is None or scope[1] != _USER_SCOPE:
                yield number, name, inputs, thread[1], _MAY_LACK in line
            number = -1


def _inputs(text: str, may_lack: bool) -> OpInputs:
    try:
        given: Mapping[str, Any] = orjson.loads(text)
        types = [_type(one, may_lack) for one in given["types"]]
        return OpInputs(
            tuple(shape_of(one) for one in given["shapes"]),
            tuple(types),
            tuple(_value(kind, one) for kind, one in zip(types, given["values"], strict=True)),
        )
    except (ValueError, KeyError, TypeError):
        return _NOTHING


def _type(text: str, may_lack: bool) -> str:
    """As the profiler calls it."""
    if text.startswith("Tensor("):
        return text[len("Tensor(") : -1] if text != _NO_TENSOR else ""
    if text.startswith(_LIST):
        if "Tensor(" not in text:
            return "ScalarList"
        return "" if may_lack else "TensorList"
    return _SCALAR.get(text, "")


def _value(kind: str, value: Any) -> str:
    return str(value) if kind in ("Scalar", "ScalarList") else ""
