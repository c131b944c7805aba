"""A part of a trace as a file of its own, for Perfetto and chrome://tracing: small, and whole in itself."""

from __future__ import annotations

import gzip
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from trackside.trace.columns import nanoseconds
from trackside.trace.file import TraceFile, event_texts
from trackside.trace.links import launch_of
from trackside.trace.model import Ints, Kind, Trace

__all__ = ["Trimmed", "write_trimmed"]

# Perfetto opens this much at once on any machine.
_MOST_BYTES = 64 << 20
# What is left out first where not all fits: frames of Python come by the million.
_SPARED = (Kind.PYTHON, Kind.MEMORY)
# A range that is still too long is shortened to a little less than what should fit.
_MARGIN = 0.9
# Entries that name the machine and its folders.
_PRIVATE = ("traceName", "host_name")
_START = re.compile(rb'"ts":\s*([0-9]+)(?:\.([0-9]{1,3}))?(?=[\s,}])')
# Threads and processes as a file names them, and when an event begins.
_Key = tuple[str, str, int]


@dataclass(frozen=True)
class Trimmed:
    """What a trimmed trace holds."""

    events: int
    """Without arrows and names."""
    begin_ns: int
    end_ns: int
    """Before the end that was wanted, where not all of it fitted."""
    left_out: int
    """Events of the range that did not fit, or whose text is damaged."""


class _Texts(NamedTuple):
    events: list[bytes]
    arrows: list[bytes]
    names: dict[bytes, None]


def write_trimmed(
    source: Path, trace: Trace, target: Path, begin_ns: int, end_ns: int, most_bytes: int = _MOST_BYTES
) -> Trimmed:
    """Copies what runs between two times, with the launches of its kernels and the kernels of its launches.

    Events are copied as they stand; those that go on through the whole range and beyond are cut to it. Of
    arrows only those are kept whose both ends are. The file is read once or twice, in blocks.

    Args:
        source: the file that `trace` was read from.
        trace: as `read_trace` gives it, with details.
        target: a new file, compressed where its name ends in `.gz`.
        begin_ns: in the trace's own time, as a step's beginning is.
        end_ns: the same.
        most_bytes: of the target before it is compressed; a range that needs more is shortened.

    Raises:
        TracksideError: the source cannot be read.
        ValueError: not even one instant fits.
    """
    wanted = int(np.count_nonzero(_kept(trace, begin_ns, end_ns, ())))
    end = end_ns
    spared: tuple[Kind, ...] = ()
    while True:
        kept = _kept(trace, begin_ns, end, spared)
        file = TraceFile(source)
        texts, needed = _texts(file, trace, kept, (begin_ns, end), most_bytes)
        if texts is not None:
            break
        if not spared and np.isin(trace.kind[kept], _SPARED).any():
            spared = _SPARED
        elif end == begin_ns:
            raise ValueError(f"most_bytes: needed {needed:,} for one instant, found {most_bytes:,}")
        else:
            end = begin_ns + int((end - begin_ns) * _MARGIN * most_bytes / needed)
    found = Trimmed(len(texts.events), begin_ns, end, max(0, wanted - len(texts.events)))
    _write(target, file.facts, texts, found)
    return found


def _kept(trace: Trace, begin: int, end: int, spared: tuple[Kind, ...]) -> npt.NDArray[np.bool_]:
    """Rows that overlap the range, and those on the other side of a launch."""
    kept = (trace.start < end) & (trace.end >= begin) & ~np.isin(trace.kind, spared)
    device = trace.on_device
    calls = launch_of(trace, device)
    launched = calls >= 0
    pair = kept[device] | (launched & kept[calls])
    kept[device[pair]] = True
    kept[calls[pair & launched]] = True
    return kept


def _texts(
    file: TraceFile, trace: Trace, kept: npt.NDArray[np.bool_], span: tuple[int, int], most: int
) -> tuple[_Texts | None, int]:
    """What to write of a file, or None where it is too much; and how many bytes that is."""
    keys, places, processes = _keys(trace, kept)
    found = _Texts([], [], {})
    needed = 0
    arrows: dict[tuple[Any, Any], list[tuple[str, bytes]]] = defaultdict(list)
    for event, text in _events(file):
        phase, place = event["ph"], (str(event.get("pid")), str(event.get("tid")))
        if phase == "M":
            here = place in places or not str(event.get("name")).startswith("thread")
            if here and place[0] in processes:
                found.names[text] = None
        elif any((*place, start) in keys for start in _starts(event, text)):
            if phase in ("s", "t", "f"):
                arrows[event.get("cat"), event.get("id")].append((phase, text))
            elif phase in ("X", "i"):
                needed += len(text)
                found.events.append(_within(event, text, *span))
                if needed > most:
                    found.events.clear()
    for ends in arrows.values():
        if {"s", "f"} <= {phase for phase, _ in ends}:
            found.arrows.extend(text for _, text in ends)
    needed += sum(map(len, (*found.arrows, *found.names)))
    return found if needed <= most else None, needed


def _events(file: TraceFile) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Every event with its text: as it stands, or where that is no JSON, as far as it can be read."""
    for block in file.blocks():
        for text in event_texts(block):
            try:
                found = [(orjson.loads(text), text)]
            except orjson.JSONDecodeError:
                found = [(event, orjson.dumps(event)) for event in file.events(text)]
            yield from (one for one in found if isinstance(one[0], dict) and "ph" in one[0])


def _keys(trace: Trace, kept: npt.NDArray[np.bool_]) -> tuple[set[_Key], set[tuple[str, str]], set[str]]:
    """What the kept rows are found by in the file: their lane and start."""
    rows: Ints = np.flatnonzero(kept)
    lanes = [(lane.process, lane.thread) for lane in trace.lanes]
    keys = {
        (*lanes[lane], start)
        for lane, start in zip(trace.lane[rows].tolist(), trace.start[rows].tolist(), strict=True)
    }
    places = {lanes[lane] for lane in np.unique(trace.lane[rows]).tolist()}
    return keys, places, {process for process, _ in places}


def _starts(event: dict[str, Any], text: bytes) -> set[int]:
    """When it begins, as the number and as its text say: they may differ by the last digit."""
    found = {_nanoseconds(event.get("ts"))}
    if written := _START.search(text):
        found.add(int(written[1]) * 1000 + int(written[2].ljust(3, b"0") if written[2] else 0))
    return found


def _nanoseconds(microseconds: Any) -> int:
    return nanoseconds(microseconds) if isinstance(microseconds, int | float) else -1


def _within(event: dict[str, Any], text: bytes, begin: int, end: int) -> bytes:
    """An event's text; one that spans more than the range on both sides is cut to it."""
    start = _nanoseconds(event["ts"])
    if start < begin and start + _nanoseconds(event.get("dur", 0)) > end:
        return orjson.dumps(event | {"ts": begin / 1000, "dur": (end - begin) / 1000})
    return text


def _write(target: Path, facts: dict[str, Any], texts: _Texts, found: Trimmed) -> None:
    """All at once under its name, so that nobody meets half of it."""
    head = {name: value for name, value in facts.items() if name not in _PRIVATE}
    head["trackside"] = {
        "begin_ns": found.begin_ns,
        "end_ns": found.end_ns,
        "left_out": found.left_out,
    }
    begin = orjson.dumps(head, option=orjson.OPT_INDENT_2).rstrip().removesuffix(b"}").rstrip()
    part = target.with_name(target.name + ".part")
    raw = part.open("wb")
    with raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if target.suffix == ".gz" else raw as out:
        out.write(begin + b',\n  "traceEvents": [\n  ')
        for count, text in enumerate((*texts.names, *texts.events, *texts.arrows)):
            out.write(b",\n  " + text if count else text)
        out.write(b"\n  ]\n}\n")
    os.replace(part, target)
