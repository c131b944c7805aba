"""Events on their way into columns: rows that grow, and tables of texts that are kept once."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from trackside.trace.file import TraceFile
from trackside.trace.model import COLUMNS, Cut, Kind, Lane, Launch, OpInputs, Trace

__all__ = ["DEVICE_KINDS", "Growing", "Numbers", "kind_of", "nanoseconds"]

_END_OF_TIME = 1 << 62

# As the profiler calls them, and as its releases before 1.12 did.
_KINDS = {
    "cpu_op": Kind.OP,
    "operator": Kind.OP,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "runtime": Kind.RUNTIME,
    "driver": Kind.RUNTIME,
    "hip_runtime": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "memcpy": Kind.COPY,
    "gpu_memset": Kind.FILL,
    "memset": Kind.FILL,
    "cuda_sync": Kind.SYNC,
    "user_annotation": Kind.ANNOTATION,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "python_function": Kind.PYTHON,
    "overhead": Kind.OVERHEAD,
}
DEVICE_KINDS = (Kind.KERNEL, Kind.COPY, Kind.FILL, Kind.SYNC, Kind.DEVICE_ANNOTATION)
_MEMORY = "[memory]"
_FACTS = (
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    "record_shapes",
    "profile_memory",
    "with_stack",
)


class Numbers(NamedTuple):
    """What an event's arguments give to the columns."""

    correlation: Any = -1
    external: Any = -1
    sequence: Any = -1
    forward_thread: Any = -1
    detail: Any = -1
    size: Any = -1


class Growing:
    """A trace that is being read."""

    def __init__(self) -> None:
        self.unreadable = 0
        self._unpaired = 0
        self._columns = {name: array("q") for name in COLUMNS}
        self._names: dict[str, int] = {}
        self._lanes: dict[tuple[Any, Any, int], int] = {}
        self._lane_names: dict[tuple[Any, Any], str] = {}
        self._inputs: dict[str, int] = {}
        self._input_rows: list[OpInputs] = []
        self._launches: dict[Launch, int] = {}

    def take(self, events: Iterable[Any]) -> None:
        """Move events into the columns; what is no event is passed over."""
        for event in events:
            try:
                phase = event["ph"]
                if phase == "X":
                    kind = kind_of(event.get("cat", ""))
                    args, duration = event.get("args") or {}, event.get("dur", 0)
                elif phase == "i" and event.get("name") == _MEMORY:
                    kind, args, duration = Kind.MEMORY, event["args"], 0
                else:
                    self._take_other(event, phase)
                    continue
                start, duration = nanoseconds(event["ts"]), max(0, nanoseconds(duration))
                numbers = self.numbers(kind, args)
                name = self.name(event["name"])
                lane = self.lane(kind, event["pid"], event["tid"], args)
                if not (0 <= start < _END_OF_TIME and 0 <= duration < _END_OF_TIME):
                    raise ValueError
            except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
                self.unreadable += 1
                continue
            row = (kind, start, duration, name, lane, *map(_number, numbers))
            for column, value in zip(self._columns.values(), row, strict=True):
                column.append(value)

    def take_instants(self, events: list[Any]) -> None:
        """The same, for what has no duration: allocations come by the ten thousand, and all are alike."""
        try:
            rows = [event for event in events if event["ph"] == "i" and event["name"] == _MEMORY]
            if rows:
                self.take_columns(self._memory(rows))
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
            self.take(events)
            return
        if len(rows) < len(events):
            self.take(event for event in events if event["ph"] != "i" or event["name"] != _MEMORY)

    def _memory(self, events: list[Any]) -> dict[str, Any]:
        """Columns, or an exception where an event is not as it should be."""
        numbers = [self.numbers(Kind.MEMORY, event["args"]) for event in events]
        lanes: dict[tuple[Any, Any], int] = {}
        for place in {(event["pid"], event["tid"]) for event in events}:
            lanes[place] = self.lane(Kind.MEMORY, *place, {})
        start = np.array([nanoseconds(event["ts"]) for event in events], np.int64)
        if start.min() < 0 or start.max() >= _END_OF_TIME:
            raise ValueError
        count = len(events)
        return {
            "kind": np.full(count, Kind.MEMORY),
            "start": start,
            "duration": np.zeros(count, np.int64),
            "name": np.full(count, self.name(_MEMORY)),
            "lane": np.array([lanes[event["pid"], event["tid"]] for event in events]),
            **{
                name: np.array(array("q", column))
                for name, column in zip(Numbers._fields, zip(*numbers, strict=True), strict=True)
            },
        }

    def take_columns(self, columns: Mapping[str, Any]) -> None:
        """Rows that are in columns already, of one length; those that are not given hold -1."""
        count = len(columns["kind"])
        nothing = np.full(count, -1)
        for name, column in self._columns.items():
            column.frombytes(np.asarray(columns.get(name, nothing), np.int64).tobytes())

    def name(self, text: Any) -> int:
        return self._names.setdefault(str(text), len(self._names))

    def lane(self, kind: Kind, process: Any, thread: Any, args: Mapping[str, Any]) -> int:
        """The lane of an event. A device's has its number, or else its process, which is the same."""
        device = args.get("device", process) if kind in DEVICE_KINDS else -1
        place = process, thread, device if isinstance(device, int) else -1
        return self._lanes.setdefault(place, len(self._lanes))

    def numbers(self, kind: Kind, args: Mapping[str, Any]) -> Numbers:
        """What the columns hold of an event's arguments."""
        if kind == Kind.MEMORY:
            return Numbers(
                args.get("Addr", -1),
                args.get("Total Allocated", -1),
                args.get("Total Reserved", -1),
                detail=args.get("Device Id", -1),
                size=args["Bytes"],
            )
        external, detail, size = args.get("External id", -1), -1, -1
        if kind == Kind.OP and "Input Dims" in args:
            detail = self.inputs(args)
        elif kind == Kind.KERNEL:
            detail = self._launch(args)
        elif kind in (Kind.COPY, Kind.FILL):
            size = args.get("bytes", -1)
        elif kind == Kind.SYNC:
            external = args.get("wait_on_cuda_event_record_corr_id", -1)
            size = args.get("wait_on_stream", -1)
        return Numbers(
            args.get("correlation", -1),
            external,
            args.get("Sequence number", -1),
            args.get("Fwd thread id", -1),
            detail,
            size,
        )

    def _take_other(self, event: Any, phase: Any) -> None:
        """Names of threads; other phases (arrows, counters, marks) say nothing that the columns do not."""
        if phase == "M" and event.get("name") == "thread_name":
            self._lane_names[event["pid"], event["tid"]] = str(event["args"]["name"])
        elif phase in ("B", "E"):
            self._unpaired += 1

    def inputs(self, args: Mapping[str, Any]) -> int:
        """The number of what an operator was called with."""
        shapes, types, values = (
            args["Input Dims"],
            args.get("Input type", ()),
            args.get("Concrete Inputs", ()),
        )
        key = f"{shapes}{types}{values}"
        found = self._inputs.get(key)
        if found is None:
            found = self._inputs[key] = len(self._input_rows)
            self._input_rows.append(
                OpInputs(
                    tuple(shape_of(one) for one in shapes),
                    tuple(str(one) for one in types),
                    tuple(str(one) for one in values),
                )
            )
        return found

    def _launch(self, args: Mapping[str, Any]) -> int:
        occupancy = args.get("est. achieved occupancy %", -1)
        launch = Launch(
            tuple(args.get("grid", ())),
            tuple(args.get("block", ())),
            _number(args.get("registers per thread", -1)),
            _number(args.get("shared memory", -1)),
            occupancy / 100 if isinstance(occupancy, int | float) and occupancy >= 0 else -1.0,
        )
        return self._launches.setdefault(launch, len(self._launches))

    def trace(self, file: TraceFile) -> Trace:
        """Everything that was taken, sorted by start; of two that start together the longer comes first."""
        cuts = self._cuts(file)
        start = np.frombuffer(self._columns["start"], np.int64)
        duration = np.frombuffer(self._columns["duration"], np.int64)
        order = np.lexsort((-duration, start))
        columns = {}
        for name, held_as in COLUMNS.items():
            column = np.frombuffer(self._columns.pop(name), np.int64)
            columns[name] = _fitted(column, held_as)[order]
        lanes = [
            Lane(str(process), str(thread), self._lane_names.get((process, thread), ""), device)
            for process, thread, device in self._lanes
        ]
        base = file.facts.get("baseTimeNanoseconds")
        return Trace(
            **columns,
            names=list(self._names),
            lanes=lanes,
            inputs=self._input_rows,
            launches=list(self._launches),
            base_ns=base if isinstance(base, int) else 0,
            facts={name: file.facts[name] for name in _FACTS if name in file.facts},
            cuts=cuts,
        )

    def _cuts(self, file: TraceFile) -> tuple[Cut, ...]:
        found = list(file.cuts)
        unreadable = self.unreadable + file.unreadable
        if unreadable:
            found.append(Cut(f"{unreadable:,} events", "they could not be read"))
        if self._unpaired:
            found.append(
                Cut(
                    f"{self._unpaired:,} events",
                    "they are begins and ends; torch's profiler writes whole ones",
                )
            )
        if not self._columns["kind"]:
            found.append(Cut("events", "there is none in the file"))
        return tuple(found)


def nanoseconds(microseconds: int | float) -> int:
    """Whole numbers, as old traces have them since 1970, are too long to be exact as floats."""
    if isinstance(microseconds, int):
        return microseconds * 1000
    return int(microseconds * 1000 + 0.5)


def kind_of(category: str) -> Kind:
    return _KINDS.get(category, Kind.OTHER)


def _fitted(column: Any, held_as: Any) -> Any:
    """A column in its own type; numbers that it cannot hold become -1."""
    if held_as is np.int64:
        return column
    limits = np.iinfo(held_as)
    fits = (column >= limits.min) & (column <= limits.max)
    return (column if fits.all() else np.where(fits, column, -1)).astype(held_as)


def _number(value: Any) -> int:
    """A number that the profiler may have written as text, or not at all."""
    if isinstance(value, str):
        return int(value) if value.lstrip("-").isdigit() else -1
    number = int(value) if isinstance(value, int | float) else -1
    return number if -(1 << 63) <= number < 1 << 63 else -1


def shape_of(dims: Any) -> tuple[int, ...]:
    """Of a tensor, as the profiler has written it; of anything else ()."""
    return tuple(d for d in dims if isinstance(d, int)) if isinstance(dims, list) else ()
