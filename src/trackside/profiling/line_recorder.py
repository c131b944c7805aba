"""Where the hooks of a line log put their events, and what decides which lines are too hot to log."""

import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

from trackside.profiling.line_events import (
    CALLED,
    FARTHEST_LINE,
    RETURNED,
    CodePlace,
    Costs,
    LineEvents,
    Mute,
    ThreadStart,
)
from trackside.profiling.line_far import far_entries

__all__ = ["HOUSEKEEPING_NS", "Recorder"]

# How long events wait until they are looked through. In 1 ms the hottest loop leaves some 4,000 of them, a
# usual program a few dozen.
HOUSEKEEPING_NS = 1_000_000
_FEWEST_TO_TAKE = 256

# Hot is a line that came more than so many times in rows of so many events with a mean of less than 2 µs, if
# nearly all of its runs are cheap.
_HOT_RUNS = 500
_ROW = 64
_HOT_NS = 2_000
_MOST_ROWS = 32  # looked at in one go, so that the program does not stand still for more than a millisecond
# Cheap is less than 1.2 µs, the event included: the smallest operation of torch takes longer while it is
# profiled, so that lines with operations keep their events. On a machine that slows down, and so logs slowly
# too, it is a few times what the shortest of the events take, such as those of a loop's own line.
_CHEAP_NS, _CHEAP_TIMES, _SHORT_SHARE = 1_200, 3, 0.1
_CHEAP_SHARE = 0.9
_FAR_SHARE = 0.85

# Packing an event costs as much as logging it, and saves 90 bytes. It waits until the window is over, or
# until there are so many.
_MOST_UNPACKED = 200_000

# Seconds. Whoever holds a lock is done in far less, unless it is a thread that a fork has left behind.
_LONGEST_WAIT = 0.1

_Columns = tuple["array[int]", "array[int]", "array[int]", "array[int]"]


class Recorder:
    """Events as the hooks append them, and what is known of their code and threads.

    `pending` is a flat list, four entries an event: time, thread key, code object, number. To extend a list
    by a tuple is the cheapest that a hook can do; tuples kept per event would busy the garbage collector.

    Args:
        is_user: whether a file is the user's.
        most_events: how many may be kept.
        costs: what an event costs here.
        housekeeping_ns: how often the hooks call `take`.
    """

    def __init__(
        self,
        is_user: Callable[[str], bool],
        most_events: int,
        costs: Costs,
        housekeeping_ns: int = HOUSEKEEPING_NS,
    ) -> None:
        self.pending: list[Any] = []
        self.housekeeping_ns = housekeeping_ns
        self.full = False
        """More events came than may be kept; the hooks take themselves off."""
        self.foreign: set[str] = set()
        """Files that are not the user's, as far as met."""
        self.hot: dict[int, dict[int, frozenset[int]]] = {}
        """id(code) → muted line → the lines muted with it. Inner dictionaries stay the same objects."""
        self.muting = False
        """Some line is muted."""
        self.silent: set[int] = set()
        """id(code) of what is muted whole: calls, returns, and all lines that were seen."""
        self.codes: list[CodeType] = []
        """The user's, as far as met. Kept alive, so that an id stands for one of them."""
        self.silenced: list[CodeType] = []
        """Muted whole, for the hooks to take note of."""
        self.notes: list[str] = []
        self._is_user = is_user
        self._most_events = most_events
        self._costs = costs
        self._mine: set[str] = set()
        self._index: dict[int, int] = {}
        self._threads: list[ThreadStart] = []
        self._thread_of_key: dict[int, int] = {}
        self._taken: list[tuple[list[Any], dict[int, int]] | _Columns] = []
        self._count = 0
        self._taking = threading.Lock()
        self._meeting = threading.RLock()
        self._far_ns: dict[tuple[int, int], float] = {}
        self._heat: Counter[tuple[int, int]] = Counter()
        self._mutes: list[tuple[int, int, int]] = []

    def wants(self, code: CodeType) -> bool:
        """Whether it is the user's code and not muted whole."""
        if id(code) in self._index:
            return id(code) not in self.silent
        if code.co_filename in self.foreign or not self._meeting.acquire(timeout=_LONGEST_WAIT):
            return False
        try:
            return id(code) in self._index or self._meet(code)
        finally:
            self._meeting.release()

    def _meet(self, code: CodeType) -> bool:
        file = code.co_filename
        if file not in self._mine:
            try:
                mine = self._is_user(file)
            except Exception as error:  # must not surface in the middle of the user's program
                mine = False
                self.notes.append(
                    f"lines of {file} are missing: asked whether it is the user's, got {error!r}"
                )
            (self._mine if mine else self.foreign).add(file)
            if not mine:
                return False
        if self._costs.far_entry_ns:
            for line, entries in far_entries(code).items():
                self._far_ns[id(code), line] = entries * self._costs.far_entry_ns
        self._index[id(code)] = len(self.codes)
        self.codes.append(code)
        self.hot[id(code)] = {}
        return True

    def add_thread(self, key: int | None = None, top: FrameType | None = None) -> int:
        """A thread that has events from now on; returns its index.

        Args:
            key: its identifier, if its events carry that and not the index. Another thread may get it when
                this one has ended.
            top: the top of its stack, if it has run before.
        """
        held = self._meeting.acquire(timeout=_LONGEST_WAIT)
        try:
            return self._add_thread(key, top)
        finally:
            if held:
                self._meeting.release()

    def _add_thread(self, key: int | None, top: FrameType | None) -> int:
        ident = threading.get_ident() if key is None else key
        thread = next((one for one in threading.enumerate() if one.ident == ident), None)
        name = None if thread is None else thread.name
        native = None if thread is None else thread.native_id
        if ident == threading.get_ident():
            native = threading.get_native_id()
        if key is not None and key in self._thread_of_key:
            known = self._thread_of_key[key]
            before = self._threads[known]
            if before.native_id in (None, native):
                self._threads[known] = ThreadStart(native, name, before.stack)
                return known
            self.take(everything=True)  # as events of the thread that had this key
        stack: list[tuple[int, int]] = []
        while top is not None:
            if self.wants(top.f_code):
                stack.append((self._index[id(top.f_code)], top.f_lineno or 0))
            top = top.f_back
        self._threads.append(ThreadStart(native, name, tuple(reversed(stack))))
        index = len(self._threads) - 1
        # A new dictionary: events taken before are packed by the old one.
        self._thread_of_key = {**self._thread_of_key, index if key is None else key: index}
        return index

    def take(self, everything: bool = False) -> None:
        """Takes what is pending, if it is much, and mutes what is hot."""
        if len(self.pending) < 4 * _FEWEST_TO_TAKE and not everything:
            return
        if not self._taking.acquire(timeout=_LONGEST_WAIT if everything else 0):
            return  # another thread is at it
        try:
            chunk = self.pending[:]
            # An interrupt between here and the next lines loses these events; the other order doubles them.
            del self.pending[: len(chunk)]
            many = self._count > _MOST_UNPACKED
            self._taken.append(
                self._pack(chunk, self._thread_of_key) if many else (chunk, self._thread_of_key)
            )
            self._count += len(chunk) // 4
            self.full = self._count >= self._most_events
            self._mute_hot(chunk)
        finally:
            self._taking.release()

    def mute(self, code: CodeType, lines: Iterable[int]) -> None:
        """Those lines are not told apart any more, nor from those muted with them before."""
        hot, fresh = self.hot[id(code)], frozenset(lines)
        group = fresh.union(*(hot.get(line, ()) for line in fresh))
        now = time.perf_counter_ns()
        self._mutes += [(now, self._index[id(code)], line) for line in sorted(fresh - hot.keys())]
        hot.update(dict.fromkeys(group, group))
        self.muting = True

    def silence(self, code: CodeType, lines: Iterable[int]) -> None:
        """That code object is muted whole: calls, returns and all these lines. Others that it has are not."""
        self.mute(code, lines)
        self.silent.add(id(code))
        self.silenced.append(code)
        self._mutes.append((time.perf_counter_ns(), self._index[id(code)], 0))

    def events(self, start_ns: int, stop_ns: int) -> LineEvents:
        """All that was logged, once the hooks are off."""
        self.take(everything=True)
        columns = array("q"), array("q"), array("q"), array("q")
        for chunk in self._taken:
            pieces = self._pack(*chunk) if len(chunk) == 2 else chunk
            for column, piece in zip(columns, pieces, strict=True):
                column.extend(piece)
        notes = list(self.notes)
        if self.full:
            lost = (stop_ns - max(columns[0])) / 1e6
            stop_ns = max(columns[0])
            notes.append(
                f"the log ended itself {lost:.1f} ms before the window did, after {len(columns[0])} events: "
                f"at most {self._most_events} are kept"
            )
        return LineEvents(
            start_ns,
            stop_ns,
            *columns,
            places=tuple(CodePlace(c.co_filename, c.co_qualname, c.co_firstlineno) for c in self.codes),
            thread_starts=tuple(self._threads),
            mutes=tuple(self._final_mutes()),
            costs=self._costs,
            far_ns={(self._index[code], line): ns for (code, line), ns in self._far_ns.items()},
            incomplete=tuple(notes),
        )

    def _pack(self, chunk: list[Any], thread_of_key: dict[int, int]) -> _Columns:
        for key in set(chunk[1::4]) - thread_of_key.keys():
            # A thread that ran before the log began, and whose stack was not seen.
            self._threads.append(ThreadStart(None, None))
            thread_of_key[key] = len(self._threads) - 1
        return (
            array("q", chunk[0::4]),
            array("q", map(thread_of_key.__getitem__, chunk[1::4])),
            array("q", map(self._index.__getitem__, map(id, chunk[2::4]))),
            array("q", chunk[3::4]),
        )

    def _final_mutes(self) -> Iterator[Mute]:
        for time_ns, code, line in self._mutes:
            hot = self.hot[id(self.codes[code])]
            yield Mute(time_ns, code, line, min(hot[line]) if line else 0)

    def _mute_hot(self, chunk: list[Any]) -> None:
        """Counts what came in rows of cheap events, and mutes what is hot now.

        Threads are not told apart: they hardly ever take turns within a row.
        """
        chunk = chunk[-4 * _ROW * _MOST_ROWS :]
        times = chunk[0::4]
        hot_ns = _HOT_NS + max(self._far_ns.values(), default=0.0)
        rows = [
            row
            for row, (first, last) in enumerate(zip(times[::_ROW], times[_ROW::_ROW], strict=False))
            if last - first < _ROW * hot_ns
        ]
        if not rows:
            return
        keys = list(zip(map(id, chunk[2::4]), chunk[3::4], strict=True))
        hot: set[tuple[int, int]] = set()
        for row in rows:
            self._heat.update(keys[row * _ROW : (row + 1) * _ROW])
            hot.update(keys[row * _ROW : (row + 1) * _ROW])
        hot = {key for key in hot if self._heat[key] > _HOT_RUNS}
        if hot:
            self._mute_cheap(hot, keys, times)

    def _mute_cheap(
        self, hot: set[tuple[int, int]], keys: Sequence[tuple[int, int]], times: Sequence[int]
    ) -> None:
        """Of what came often, mutes what is also cheap nearly every time."""
        codes = {code for code, _ in hot}
        taken: dict[tuple[int, int], list[float]] = {}
        gaps: Sequence[float] = [last - first for first, last in pairwise(times)]
        if self._far_ns:  # what the next event took to come, but for what is uncertain of it
            far = [_FAR_SHARE * self._far_ns.get(key, 0.0) for key in keys[1:]]
            gaps = [gap - more for gap, more in zip(gaps, far, strict=True)]
        for key, gap in zip(keys, gaps, strict=False):
            if key[0] in codes and key[1] != RETURNED:  # the time after a return is the caller's
                taken.setdefault(key, []).append(gap)
        limit = min(_HOT_NS, max(_CHEAP_NS, _CHEAP_TIMES * _quantile(gaps, _SHORT_SHARE)))
        cheap = {key for key, spans in taken.items() if _quantile(spans, _CHEAP_SHARE) <= limit}
        for code in codes:
            code_object = self.codes[self._index[code]]
            called = any(one == code and CALLED - FARTHEST_LINE <= number <= CALLED for one, number in hot)
            mine = [key for key in taken if key[0] == code]
            if called and cheap.issuperset(mine):
                if code not in self.silent:
                    self.silence(code_object, [number for _, number in mine if number > 0])
                continue
            lines = [number for one, number in hot & cheap if one == code and number > 0]
            if lines:
                self.mute(code_object, lines)
                for line in lines:
                    # From zero again: a muted line whose events go on was muted without its neighbours.
                    del self._heat[code, line]


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]
