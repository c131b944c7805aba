"""A real trace made as long as wanted: its events again and again, with later times and new numbers."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import orjson

from trackside.trace.file import TraceFile, event_texts

__all__ = ["write_repeated"]

# What must differ between two turns: times, and the numbers that tie events to each other.
_MOVED = re.compile(rb'("(?:ts|correlation|External id|id|Ev Idx|Sequence number)":\s*)([0-9]+(?:\.[0-9]+)?)')
_TIME = b'"ts"'
# Between the last event of a turn and the first of the next.
_PAUSE_NS = 10_000


def write_repeated(source: Path, target: Path, least_bytes: int) -> int:
    """Writes the events of a trace, as they are laid out there, until the file has this size.

    Args:
        source: a trace as torch's profiler writes it.
        target: a plain file.
        least_bytes: size that the target has at least; it ends with a whole turn.

    Returns:
        How many times the events stand in it.
    """
    file = TraceFile(source)
    texts = [text for block in file.blocks() for text in event_texts(block)]
    once, again = [], []
    begins, ends, numbers = [], [], [0]
    for text in texts:
        event = orjson.loads(text)
        if event["ph"] not in "Xsfi" or not isinstance(event["pid"], int):
            once.append(text)
            continue
        pieces = _MOVED.split(text)
        again.append(pieces)
        begins.append(_thousandths(event["ts"]))
        ends.append(begins[-1] + _thousandths(event.get("dur", 0)))
        numbers += [
            int(number) for key, number in zip(pieces[1::3], pieces[2::3], strict=True) if _TIME not in key
        ]
    later, stride = max(ends) - min(begins) + _PAUSE_NS, max(numbers) + 1
    head = json.dumps({name: value for name, value in file.facts.items() if name != "traceName"}, indent=2)
    turn = 0
    with target.open("wb") as out:
        out.write(head.rstrip("}").rstrip().encode() + b',\n  "traceEvents": [\n  ')
        out.write(b",\n  ".join(once))
        for turn in itertools.count():
            if out.tell() >= least_bytes:
                break
            out.write(b",\n  " + b",\n  ".join(_moved(p, turn * later, turn * stride) for p in again))
        out.write(b"\n  ]\n}\n")
    return turn


def _moved(pieces: list[bytes], later_ns: int, more: int) -> bytes:
    """An event with its times and numbers raised; `pieces` are text, key, number, text, …"""
    moved = list(pieces)
    for at in range(1, len(pieces), 3):
        if _TIME in pieces[at]:
            time = _thousandths(float(pieces[at + 1])) + later_ns
            moved[at + 1] = b"%d.%03d" % divmod(time, 1000)
        else:
            moved[at + 1] = b"%d" % (int(pieces[at + 1]) + more)
    return b"".join(moved)


def _thousandths(microseconds: float) -> int:
    return round(microseconds * 1000)
