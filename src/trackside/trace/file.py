"""A trace's file as texts of whole events, a few megabytes at a time, and what stands beside them.

Loaded whole, a trace takes eight times its size. Here a block is parsed and dropped before the next is read.
"""

from __future__ import annotations

import gzip
import itertools
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import orjson

from trackside.records.errors import TracksideError
from trackside.trace.model import Cut

__all__ = ["Progress", "TraceFile", "event_texts"]

_BLOCK_BYTES = 4 << 20
# Where the list of events begins must be found in so much: a trace's header is small.
_MOST_HEADER = 64 << 20
# An event that takes more is none. Where one ends is looked for in the last bytes of a block first.
_MOST_EVENT, _TAIL_BYTES = 64 << 20, 64 << 10
_GZIP = b"\x1f\x8b"
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
# Between two events. No event holds a list of such objects.
_KEYS = rb'"(?:ph|name|cat|args|pid|tid|ts|dur|id|s|bp)"'
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{\s*" + _KEYS + rb"\s*:)")
# Where the list of events may end: behind an event, or at once. Of all other brackets the last few are looked
# at too, for the last event may be damaged; where much is, there are thousands, and each costs a look at all.
_END = re.compile(rb"(?:[},]\s*|\A\s*)\]")
_MOST_ENDS = 32
# The profiler writes these where it divided by zero; JSON has no word for them.
_NO_NUMBERS = re.compile(rb"(?<=[:\[,\s])-?(?:nan|inf|NaN|Infinity)(?=[\s,\]}])")

Progress = Callable[[int], None]
"""Told how many bytes of the file have been read."""


class TraceFile:
    """A file in Chrome's format, plain or compressed; read once, by `blocks`."""

    def __init__(self, path: Path, progress: Progress = lambda read: None) -> None:
        self.path = path
        self.facts: dict[str, Any] = {}
        """Top-level entries beside the events, as far as they have been read."""
        self.cuts: list[Cut] = []
        self.unreadable = 0
        """Events, or what stood in their place, that are no JSON."""
        self._progress = progress

    def blocks(self) -> Iterator[bytes]:
        """Texts of whole events with commas between them. A file that ends early gives what it holds.

        Raises:
            TracksideError: `not-found`, or `usage` where the file is no such trace.
        """
        try:
            with self.path.open("rb") as raw:
                yield from self._texts(raw)
        except FileNotFoundError:
            raise TracksideError("not-found", f"there is no file {self.path}", "name a trace file") from None
        except OSError as error:
            raise TracksideError(
                "usage", f"{self.path} cannot be read: {error.strerror or error}", "name a trace file"
            ) from None
        except _NoTraceError as error:
            raise TracksideError(
                "usage",
                f"{self.path} is no trace: {error}",
                "give a file that torch.profiler's export_chrome_trace wrote (.json or .json.gz)",
            ) from None

    def events(self, text: bytes) -> list[Any]:
        """A block's events; where they are no JSON, without those that cannot be read, which are counted."""
        for mended in (text, None):
            if mended is None:
                mended = _NO_NUMBERS.sub(b"null", text.decode("utf-8", "replace").encode())
            try:
                found: list[Any] = orjson.loads(b"[" + mended.strip().strip(b",") + b"]")
                return found
            except orjson.JSONDecodeError:
                continue
        assert mended is not None
        return list(self._one_by_one(mended))

    def _one_by_one(self, text: bytes) -> Iterator[Any]:
        for one in event_texts(text):
            try:
                yield orjson.loads(one)
            except orjson.JSONDecodeError:
                self.unreadable += 1

    def _texts(self, raw: IO[bytes]) -> Iterator[bytes]:
        read = self._read(_unpacked(raw))
        held = self._after_header(read)
        for more in read:
            text, held = self._whole(held + more)
            if text:
                yield text
            self._progress(raw.tell())
        yield self._rest(held)

    def _read(self, file: IO[bytes]) -> Iterator[bytes]:
        while True:
            block, whole = self._block(file)
            if block:
                yield block
            if not block or not whole:
                return

    def _block(self, file: IO[bytes]) -> tuple[bytes, bool]:
        """What can be read next, and whether that was possible to its end.

        In pieces: one read of a whole block loses all of it where the compressed file is damaged inside.
        """
        pieces: list[bytes] = []
        size = 0
        while size < _BLOCK_BYTES:
            try:
                piece = file.read1(_BLOCK_BYTES - size)  # type: ignore[attr-defined]
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                self.cuts.append(Cut("the end of the trace", f"the compressed file is damaged: {error}"))
                return b"".join(pieces), False
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces), True

    def _after_header(self, read: Iterator[bytes]) -> bytes:
        """What stands before the list goes into the facts; returns what is read of the list so far."""
        head = b""
        for block in read:
            head += block
            if not head.strip():
                continue
            if head.lstrip()[:1] == b"[":
                return head.lstrip()[1:]
            if head.lstrip()[:1] != b"{":
                raise _NoTraceError("it does not begin like JSON")
            if found := _EVENTS.search(head):
                self.facts |= _parsed_facts(head[: found.start()].rstrip().rstrip(b",") + b"}") or {}
                return head[found.end() :]
            if len(head) > _MOST_HEADER:
                break
        if not head.strip():
            raise _NoTraceError(self.cuts[-1].why if self.cuts else "it is empty")
        raise _NoTraceError("it has no list `traceEvents`")

    def _whole(self, data: bytes) -> tuple[bytes, bytes]:
        """The whole events at its beginning, and what is left."""
        end = _last_end(data)
        if end is None:
            if len(data) < _MOST_EVENT:
                return b"", data
            self.unreadable += 1
            return b"", b""
        return data[:end], data[end:].lstrip().removeprefix(b",")

    def _rest(self, data: bytes) -> bytes:
        """The last events; the end of the list and what comes after it is looked at."""
        last = _last_end(data) or 0
        begun = data[last:]
        for end in _ends(begun):
            after = begun[end + 1 :].lstrip().removeprefix(b",")
            facts = _parsed_facts(b"{" + after)
            if not after.strip() or facts is not None:
                self.facts |= facts or {}
                return data[: last + end]
        if begun.strip(b" \t\r\n,]}"):
            self.cuts.append(
                Cut("the end of the trace", f"the file ends inside an event ({len(begun):,} bytes of it)")
            )
        elif b"]" not in begun:
            self.cuts.append(Cut("the end of the trace", "the file ends inside its list of events"))
        return data[:last]


def event_texts(text: bytes) -> Iterator[bytes]:
    """Each event of a block as it is written, without the commas between them."""
    ends = [0, *(found.start() + 1 for found in _BETWEEN.finditer(text)), len(text)]
    for begin, end in itertools.pairwise(ends):
        if one := text[begin:end].strip().strip(b",").strip():
            yield one


class _NoTraceError(Exception):
    pass


def _unpacked(raw: IO[bytes]) -> IO[bytes]:
    packed = raw.read(2) == _GZIP
    raw.seek(0)
    return gzip.open(raw) if packed else raw  # type: ignore[return-value]


def _last_end(data: bytes) -> int | None:
    """Where the last event ends that another follows."""
    for begin in (max(0, len(data) - _TAIL_BYTES), 0):
        ends = [found.start() + 1 for found in _BETWEEN.finditer(data, begin)]
        if ends:
            return ends[-1]
    return None


def _ends(begun: bytes) -> list[int]:
    """Where the list may end, of the text from the last event on, in order."""
    found = {match.end() - 1 for match in itertools.islice(_END.finditer(begun), _MOST_ENDS)}
    at = len(begun)
    for _ in range(_MOST_ENDS):
        at = begun.rfind(b"]", 0, at)
        if at < 0:
            break
        found.add(at)
    return sorted(found)


def _parsed_facts(text: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(_NO_NUMBERS.sub(b"null", text))
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
