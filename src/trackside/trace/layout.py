"""Events in the layout of torch's own traces, found by their lines: most of a file needs no JSON parser.

The profiler writes every event the same way: a line `  {`, lines with kind, name and place, a line with the
time, and one line of arguments. The first of these repeat, so each is parsed once; times are read for all
events of a block together. What is written otherwise is handed back, to be parsed as any JSON.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trackside.trace.model import Ints

__all__ = ["Scanned", "scan"]

_Bytes = npt.NDArray[np.uint8]
_Words = npt.NDArray[np.uint64]
_Mask = npt.NDArray[np.bool_]


def _word(text: bytes) -> Any:
    """Up to eight characters as they are compared: all at once."""
    return np.uint64(int.from_bytes(text, "little"))


def _first(characters: int) -> Any:
    return np.uint64((1 << 8 * characters) - 1)


_OPENS, _CLOSES = _word(b"  {\n    "), _word(b"  }")
_WHOLE, _ARROWS = _word(b'"ph": "X'), (_word(b'"ph": "s'), _word(b'"ph": "f'))
_TIME, _ARGUMENTS, _ARGUMENTS_END = _word(b'"ts": '), _word(b'"args": '), _word(b"    }\n  ")
# Behind the start comes the duration: on its line, or since torch 2.12 on one of its own.
_DURATION, _DURATION_BELOW = _word(b', "dur":'), (_word(b',\n    "d'), _word(b' "dur": '))
# Characters of a line before its first key, of `"ts": ` and of what stands before a duration.
_INDENT, _BEFORE_TIME, _BEFORE_DURATION, _BEFORE_DURATION_BELOW = 4, 10, 9, 13
# No number is longer, and no look at what follows one reaches further.
_LONGEST_NUMBER, _PADDING = 24, 80
_DOT, _ZERO = 46, 48
# A date in microseconds has 16 digits before its dot; its nanoseconds fit 64 bits until the year 2262.
_DECIMALS, _MOST_DIGITS = 3, 16


class Scanned(NamedTuple):
    """A block's events of phase X, and the texts of others; arrows say nothing new and are left out."""

    heads: list[bytes]
    """What stands before an event's time: its kind, name, process and thread, as JSON without braces."""
    start_ns: Ints
    duration_ns: Ints
    arguments: list[bytes]
    """As JSON without braces; empty where there are none, or none were wanted."""
    others: list[bytes]


def scan(text: bytes, arguments: bool) -> Scanned | None:
    """Splits a block of whole events; None where it is not in the profiler's layout."""
    text = text.rstrip()
    padded = text + bytes(_PADDING)
    data = np.frombuffer(padded, np.uint8)
    words: _Words = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))
    line = np.concatenate(([0], np.flatnonzero(data[: len(text)] == ord("\n")) + 1))
    opens = np.flatnonzero(words[line] == _OPENS)
    if not len(opens) or text[: line[opens[0]]].strip():
        return None
    key = words[line + _INDENT]
    line = np.append(line, len(text) + 1)  # Where a line behind the last would begin.
    after = np.append(opens[1:], len(line) - 1)
    phase = key[opens + 1]
    whole = phase == _WHOLE
    at, until = opens[whole], after[whole]
    time = _next(np.flatnonzero((key & _first(6)) == _TIME), at)
    fits = (time < until) & ((words[line[until - 1]] & _first(3)) == _CLOSES)
    time = np.minimum(time, until - 1)
    start, end, good = _nanoseconds(data, line[time] + _BEFORE_TIME)
    beside = words[end] == _DURATION
    below = (words[end] == _DURATION_BELOW[0]) & (words[end + 5] == _DURATION_BELOW[1])
    fits &= good & (beside | below)
    duration, _, good = _nanoseconds(
        data, np.where(fits, end + np.where(beside, _BEFORE_DURATION, _BEFORE_DURATION_BELOW), 0)
    )
    given = _next(np.flatnonzero(key == _ARGUMENTS), at)
    has = given < until
    given = np.minimum(given, until - 1)
    inner = np.minimum(given + 2, until)
    # Arguments on one line, then the end of them, then the event's.
    fits &= good & np.where(
        has, (until == given + 4) & (words[line[inner]] == _ARGUMENTS_END), until <= time + 4
    )
    heads = _slices(text, line[at + 1][fits] + _INDENT, line[time][fits])
    inside: list[bytes] = []
    if arguments:
        first, last = line[np.minimum(given + 1, until)], line[inner] - 1
        inside = _slices(text, np.where(has, first, 0)[fits], np.where(has, last, 0)[fits])
    odd = ~np.isin(phase, _ARROWS)
    odd[np.flatnonzero(whole)[fits]] = False
    others = _slices(text, line[opens[odd]], line[after[odd]] - 1)
    return Scanned(heads, start[fits], duration[fits], inside, others)


def _next(places: Ints, after: Ints) -> Ints:
    """The first of these places behind each; one beyond all where there is none."""
    known = np.append(places, np.iinfo(np.int64).max)
    found: Ints = known[np.searchsorted(places, after)]
    return found


def _slices(text: bytes, begins: Ints, ends: Ints) -> list[bytes]:
    return [text[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def _nanoseconds(data: _Bytes, at: Ints) -> tuple[Ints, Ints, _Mask]:
    """Microseconds, with up to three decimals, at these places; where each ends; which are such numbers."""
    value = np.zeros(len(at), np.int64)
    decimals = np.zeros(len(at), np.int64)
    going, behind_dot = np.ones(len(at), np.bool_), np.zeros(len(at), np.bool_)
    end = at.copy()
    last = len(data) - 1
    for _ in range(_LONGEST_NUMBER):
        character = data[np.minimum(end, last)]
        digit = (character - _ZERO) < 10
        dot = (character == _DOT) & ~behind_dot
        going &= digit | dot
        if not going.any():
            break
        digit &= going
        np.copyto(value, value * 10 + (character - _ZERO), where=digit)
        decimals += digit & behind_dot
        behind_dot |= dot & going
        end += going
    whole_digits = end - at - decimals - behind_dot
    good = ~going & (whole_digits > 0) & (whole_digits <= _MOST_DIGITS) & (decimals <= _DECIMALS)
    # An exponent, a sign, text: whatever does not end as a number in a list of keys does.
    follows = data[np.minimum(end, last)]
    good &= (follows == ord(",")) | (follows == ord("\n")) | (follows == ord(" "))
    value = np.where(good, value, 0) * 10 ** np.clip(_DECIMALS - decimals, 0, _DECIMALS)
    return value, end, good & (value >= 0)
