"""Reads the JSON that torch's profiler writes into columns, block by block."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from trackside.trace.columns import DEVICE_KINDS, Growing, Numbers, kind_of
from trackside.trace.file import Progress, TraceFile
from trackside.trace.layout import Scanned, scan
from trackside.trace.model import Kind, Trace

__all__ = ["read_trace"]

# What an operator was called with stands between these. It repeats, what is around it does not.
_INPUTS_BEGIN, _INPUTS_END = b', "Concrete Inputs": ', b', "Ev Idx": '
_DIMS = "Input Dims"
_NUMBERS = {
    "correlation": "correlation",
    "external": "External id",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
}
"""Columns of every kind of event, and the arguments that they hold."""


def read_trace(path: Path, progress: Progress = lambda read: None, details: bool = True) -> Trace:
    """A trace as torch's profiler writes it (`.json`, `.json.gz`), or another in Chrome's format.

    A file that ends early gives what it holds; `cuts` then says so.

    Args:
        path: the file.
        progress: told how many bytes of the file have been read.
        details: also what operators and kernels were called with, and the numbers that link them. Kinds,
            names, lanes and times alone take half as long to read, and are enough for steps, a breakdown and
            what ran longest.

    Raises:
        TracksideError: `not-found`, or `usage` where the file is no such trace.
    """
    file = TraceFile(path, progress)
    found = Growing()
    quick = _Quick(found, details)
    for text in file.blocks():
        scanned = scan(text, details)
        if scanned is None or not quick.take(scanned):
            found.take(file.events(text))
        elif scanned.others:
            found.take_instants(file.events(b",".join(one.rstrip(b", \n") for one in scanned.others)))
    return found.trace(file)


class _Quick:
    """Moves blocks in the profiler's own layout into columns, with little to do for each event."""

    def __init__(self, found: Growing, details: bool) -> None:
        self._found = found
        self._details = details
        self._heads: dict[bytes, int] = {}
        self._kinds: list[Kind] = []
        self._names: list[int] = []
        self._lanes: list[int] = []
        self._places: dict[int, tuple[Any, Any]] = {}
        self._inputs: dict[bytes, int] = {}

    def take(self, scanned: Scanned) -> bool:
        """False, and nothing is taken, where something is not as expected: it is then read as any JSON."""
        try:
            heads = self._numbered(scanned.heads)
            columns: dict[str, Any] = {
                "kind": np.array(self._kinds, np.int64)[heads],
                "name": np.array(self._names, np.int64)[heads],
                "lane": np.array(self._lanes, np.int64)[heads],
                "start": scanned.start_ns,
                "duration": scanned.duration_ns,
            }
            if self._details:
                self._add_details(columns, scanned.arguments)
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError, OverflowError):
            return False
        self._found.take_columns(columns)
        return True

    def _numbered(self, heads: list[bytes]) -> Any:
        """The number of each event's head: what has been met before needs no parsing."""
        found = list(map(self._heads.get, heads))
        if None in found:
            found = [
                self._new_head(text) if one is None else one for one, text in zip(found, heads, strict=True)
            ]
        return np.array(found, np.int64)

    def _new_head(self, text: bytes) -> int:
        if text not in self._heads:
            head = orjson.loads(b"{" + text.rstrip().rstrip(b",") + b"}")
            kind = kind_of(head["cat"])
            lane = self._found.lane(kind, head["pid"], head["tid"], {})
            self._names.append(self._found.name(head["name"]))
            self._kinds.append(kind)
            self._lanes.append(lane)
            self._places[lane] = head["pid"], head["tid"]
            self._heads[text] = len(self._heads)
        return self._heads[text]

    def _add_details(self, columns: dict[str, Any], arguments: list[bytes]) -> None:
        """Columns from the arguments. Those of operators have the most text and little in it that is new."""
        short = arguments.copy()
        inputs = np.full(len(short), -1)
        known = self._inputs
        for row in np.flatnonzero(columns["kind"] == Kind.OP).tolist():
            text = arguments[row]
            begin = text.find(_INPUTS_BEGIN)
            if begin >= 0:
                end = text.rfind(_INPUTS_END)
                given = text[begin + 2 : end if end > begin else None]
                found = known.get(given)
                inputs[row] = self._new_inputs(given) if found is None else found
                short[row] = text[:begin]
        args = orjson.loads(b"[{" + b"},{".join(short) + b"}]") if short else []
        if len(args) != len(short):
            raise ValueError
        for column, key in _NUMBERS.items():
            columns[column] = np.array(array("q", [one.get(key, -1) for one in args]))
        columns["detail"], columns["size"] = inputs, np.full(len(args), -1)
        special = np.isin(columns["kind"], DEVICE_KINDS)
        special |= [_DIMS in one for one in args]
        for row in np.flatnonzero(special).tolist():
            kind, one = Kind(columns["kind"][row]), args[row]
            if kind == Kind.OP:  # Its inputs stand elsewhere, as a compiled kernel's do.
                one = orjson.loads(b"{" + arguments[row] + b"}")
            numbers = array("q", self._found.numbers(kind, one))
            for column, value in zip(Numbers._fields, numbers, strict=True):
                columns[column][row] = value
            if "device" in one:
                process, thread = self._places[columns["lane"][row]]
                columns["lane"][row] = self._found.lane(kind, process, thread, one)

    def _new_inputs(self, text: bytes) -> int:
        args = orjson.loads(b"{" + text + b"}")
        if not args.keys().isdisjoint(_NUMBERS.values()):
            raise ValueError  # Another order of the arguments.
        found = self._found.numbers(Kind.OP, args).detail
        self._inputs[text] = found
        return int(found)
