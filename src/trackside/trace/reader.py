"""Reads the JSON that torch's profiler writes, a few megabytes at a time.

Loaded whole, a trace takes eight times its size. Here a block of events is parsed, moved into columns and
dropped before the next is read.
"""

from __future__ import annotations

import gzip
import itertools
import re
import zlib
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson

from trackside.records.errors import TracksideError
from trackside.trace.model import COLUMNS, Cut, Kind, Lane, Launch, OpInputs, Trace

__all__ = ["read_trace"]

_BLOCK_BYTES = 4 << 20
# Where the list of events begins must be found in so much: a trace's header is small.
_MOST_HEADER = 64 << 20
# An event that takes more is none. Where one ends is looked for in the last bytes of a block first.
_MOST_EVENT, _TAIL_BYTES = 64 << 20, 64 << 10
_END_OF_TIME = 1 << 62
_GZIP = b"\x1f\x8b"
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
# Between two events. No event holds a list of such objects.
_KEYS = rb'"(?:ph|name|cat|args|pid|tid|ts|dur|id|s|bp)"'
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{\s*" + _KEYS + rb"\s*:)")
# The profiler writes these where it divided by zero; JSON has no word for them.
_NO_NUMBERS = re.compile(rb"(?<=[:\[,\s])-?(?:nan|inf|NaN|Infinity)(?=[\s,\]}])")

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
_DEVICE_KINDS = (Kind.KERNEL, Kind.COPY, Kind.FILL, Kind.SYNC, Kind.DEVICE_ANNOTATION)
_FACTS = (
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    "record_shapes",
    "profile_memory",
    "with_stack",
)

Progress = Callable[[int], None]


def read_trace(path: Path, progress: Progress = lambda read: None) -> Trace:
    """A trace as torch's profiler writes it (`.json`, `.json.gz`), or another in Chrome's format.

    A file that ends early gives what it holds; `cuts` then says so.

    Args:
        path: the file.
        progress: told how many bytes of the file have been read.

    Raises:
        TracksideError: `not-found`, or `usage` where the file is no such trace.
    """
    builder = _Builder()
    try:
        with path.open("rb") as raw:
            _read(_unpacked(raw), builder, raw, progress)
    except FileNotFoundError:
        raise TracksideError("not-found", f"there is no file {path}", "name a trace file") from None
    except OSError as error:
        raise TracksideError(
            "usage", f"{path} cannot be read: {error.strerror or error}", "name a trace file"
        ) from None
    except _NoTraceError as error:
        raise TracksideError(
            "usage",
            f"{path} is no trace: {error}",
            "give a file that torch.profiler's export_chrome_trace wrote (.json or .json.gz)",
        ) from None
    return builder.trace()


class _NoTraceError(Exception):
    pass


def _unpacked(raw: IO[bytes]) -> IO[bytes]:
    packed = raw.read(2) == _GZIP
    raw.seek(0)
    return gzip.open(raw) if packed else raw  # type: ignore[return-value]


def _read(file: IO[bytes], builder: _Builder, raw: IO[bytes], progress: Progress) -> None:
    blocks = _blocks(file, builder)
    held = _header(blocks, builder)
    for block in blocks:
        held = _take_block(held + block, builder)
        progress(raw.tell())
    _take_rest(held, builder)


def _blocks(file: IO[bytes], builder: _Builder) -> Iterator[bytes]:
    while True:
        try:
            block = file.read(_BLOCK_BYTES)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            builder.cuts.append(Cut("the end of the trace", f"the compressed file is damaged: {error}"))
            return
        if not block:
            return
        yield block


def _header(blocks: Iterator[bytes], builder: _Builder) -> bytes:
    """What stands before the list of events goes into the facts; returns what is read of the list so far."""
    head = b""
    for block in blocks:
        head += block
        if not head.strip():
            continue
        if head.lstrip()[:1] == b"[":
            return head.lstrip()[1:]
        if head.lstrip()[:1] != b"{":
            raise _NoTraceError("it does not begin like JSON")
        if found := _EVENTS.search(head):
            builder.take_facts(head[: found.start()].rstrip().rstrip(b",") + b"}")
            return head[found.end() :]
        if len(head) > _MOST_HEADER:
            break
    raise _NoTraceError("it has no list `traceEvents`" if head.strip() else "it is empty")


def _take_block(data: bytes, builder: _Builder) -> bytes:
    """Take the whole events at its beginning; returns what is left."""
    end = _last_end(data)
    if end is None:
        if len(data) < _MOST_EVENT:
            return data
        builder.unreadable += 1
        return b""
    _take_events(data[:end], builder)
    return data[end:].lstrip().removeprefix(b",")


def _last_end(data: bytes) -> int | None:
    """Where the last event ends that another follows."""
    for begin in (max(0, len(data) - _TAIL_BYTES), 0):
        ends = [found.start() + 1 for found in _BETWEEN.finditer(data, begin)]
        if ends:
            return ends[-1]
    return None


def _take_rest(data: bytes, builder: _Builder) -> None:
    """The last events, the end of the list, and what comes after it."""
    last = _last_end(data) or 0
    for found in re.finditer(rb"\]", data[last:]):
        end = last + found.start()
        after = data[end + 1 :].lstrip().removeprefix(b",")
        if not after.strip() or _parsed_facts(b"{" + after) is not None:
            _take_events(data[:end], builder)
            builder.take_facts(b"{" + after)
            return
    _take_events(data[:last], builder)
    data = data[last:]
    if data.strip(b" \t\r\n,]}"):
        builder.cuts.append(
            Cut("the end of the trace", f"the file ends inside an event ({len(data):,} bytes of it)")
        )
    elif b"]" not in data:
        builder.cuts.append(Cut("the end of the trace", "the file ends inside its list of events"))


def _take_events(data: bytes, builder: _Builder) -> None:
    """Events between commas; where they are no JSON, one by one, without those that cannot be read."""
    for text in (data, None):
        if text is None:
            text = _NO_NUMBERS.sub(b"null", data.decode("utf-8", "replace").encode())
        try:
            builder.take(orjson.loads(b"[" + text.strip().strip(b",") + b"]"))
            return
        except orjson.JSONDecodeError:
            continue
    assert text is not None
    ends = [0, *(found.start() + 1 for found in _BETWEEN.finditer(text)), len(text)]
    for begin, end in itertools.pairwise(ends):
        try:
            builder.take([orjson.loads(text[begin:end].strip().strip(b","))])
        except orjson.JSONDecodeError:
            builder.unreadable += 1


def _parsed_facts(text: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(_NO_NUMBERS.sub(b"null", text))
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


class _Builder:
    """Columns that grow, and tables of texts that are kept once."""

    def __init__(self) -> None:
        self.cuts: list[Cut] = []
        self.unreadable = 0
        self._unpaired = 0
        self._facts: dict[str, Any] = {}
        self._base_ns = 0
        self._columns = {name: array("q") for name in COLUMNS}
        self._names: dict[str, int] = {}
        self._lanes: dict[tuple[Any, Any, int], int] = {}
        self._lane_names: dict[tuple[Any, Any], str] = {}
        self._inputs: dict[str, int] = {}
        self._input_rows: list[OpInputs] = []
        self._launches: dict[Launch, int] = {}

    def take_facts(self, text: bytes) -> None:
        """Top-level entries beside the events."""
        found = _parsed_facts(text)
        if found is not None:
            self._facts |= {name: found[name] for name in _FACTS if name in found}
            base = found.get("baseTimeNanoseconds")
            self._base_ns = base if isinstance(base, int) else self._base_ns

    def take(self, events: list[Any]) -> None:
        """Move events into the columns; what is no event is passed over."""
        columns = self._columns
        adds = [columns[name].append for name in COLUMNS]
        add_kind, add_start, add_duration, add_name, add_lane, add_correlation, add_external = adds[:7]
        add_sequence, add_forward, add_detail, add_size = adds[7:]
        names, lanes = self._names, self._lanes
        kinds, device_kinds = _KINDS, _DEVICE_KINDS
        for event in events:
            try:
                phase = event["ph"]
                if phase == "X":
                    kind = kinds.get(event.get("cat", ""), Kind.OTHER)
                    args = event.get("args") or {}
                    start, duration = event["ts"], event.get("dur", 0)
                elif phase == "i" and event.get("name") == "[memory]":
                    kind, args, start, duration = Kind.MEMORY, event["args"], event["ts"], 0
                else:
                    self._take_other(event, phase)
                    continue
                start, duration = int(start * 1000 + 0.5), max(0, int(duration * 1000 + 0.5))
                correlation, external = args.get("correlation", -1), args.get("External id", -1)
                sequence, forward = args.get("Sequence number", -1), args.get("Fwd thread id", -1)
                device = args.get("device", event["pid"]) if kind in device_kinds else -1
                place = event["pid"], event["tid"], device if isinstance(device, int) else -1
                size, detail = -1, -1
                if kind == Kind.OP:
                    if "Input Dims" in args:
                        detail = self._inputs_of(args)
                elif kind == Kind.KERNEL:
                    detail = self._launch_of(args)
                elif kind in (Kind.COPY, Kind.FILL):
                    size = args.get("bytes", -1)
                elif kind == Kind.MEMORY:
                    size, detail = args["Bytes"], args.get("Device Id", -1)
                    correlation, external = args.get("Addr", -1), args.get("Total Allocated", -1)
                    sequence = args.get("Total Reserved", -1)
                elif kind == Kind.SYNC:
                    external = args.get("wait_on_cuda_event_record_corr_id", -1)
                    size = args.get("wait_on_stream", -1)
                row = [correlation, external, sequence, forward, detail, size]
                if not all(type(value) is int for value in row):
                    row = [_number(value) for value in row]
                name = names.setdefault(str(event["name"]), len(names))
                lane = lanes.setdefault(place, len(lanes))
                if not (0 <= start < _END_OF_TIME and 0 <= duration < _END_OF_TIME):
                    raise ValueError
            except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
                self.unreadable += 1
                continue
            add_kind(kind)
            add_start(start)
            add_duration(duration)
            add_name(name)
            add_lane(lane)
            add_correlation(row[0])
            add_external(row[1])
            add_sequence(row[2])
            add_forward(row[3])
            add_detail(row[4])
            add_size(row[5])

    def _take_other(self, event: Any, phase: Any) -> None:
        """Names of threads; other phases (arrows, counters, marks) say nothing that the columns do not."""
        if phase == "M" and event.get("name") == "thread_name":
            self._lane_names[event["pid"], event["tid"]] = str(event["args"]["name"])
        elif phase in ("B", "E"):
            self._unpaired += 1

    def _inputs_of(self, args: dict[str, Any]) -> int:
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
                    tuple(_shape(one) for one in shapes),
                    tuple(str(one) for one in types),
                    tuple(str(one) for one in values),
                )
            )
        return found

    def _launch_of(self, args: dict[str, Any]) -> int:
        occupancy = args.get("est. achieved occupancy %", -1)
        launch = Launch(
            tuple(args.get("grid", ())),
            tuple(args.get("block", ())),
            _number(args.get("registers per thread", -1)),
            _number(args.get("shared memory", -1)),
            occupancy / 100 if isinstance(occupancy, int | float) and occupancy >= 0 else -1.0,
        )
        return self._launches.setdefault(launch, len(self._launches))

    def trace(self) -> Trace:
        """Everything that was taken, sorted by start; of two that start together the longer comes first."""
        self._tell_cuts()
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
        return Trace(
            **columns,
            names=list(self._names),
            lanes=lanes,
            inputs=self._input_rows,
            launches=list(self._launches),
            base_ns=self._base_ns,
            facts=self._facts,
            cuts=tuple(self.cuts),
        )

    def _tell_cuts(self) -> None:
        if self.unreadable:
            self.cuts.append(Cut(f"{self.unreadable:,} events", "they could not be read"))
        if self._unpaired:
            self.cuts.append(
                Cut(
                    f"{self._unpaired:,} events",
                    "they are begins and ends; torch's profiler writes whole ones",
                )
            )
        if not self._columns["kind"]:
            self.cuts.append(Cut("events", "there is none in the file"))


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


def _shape(dims: Any) -> tuple[int, ...]:
    return tuple(d for d in dims if isinstance(d, int)) if isinstance(dims, list) else ()
