"""The hooks of a line log on Python 3.12 and later: `sys.monitoring`, for all threads at once."""

import os
import sys
import threading
import time
from _thread import get_ident
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any

from trackside.profiling.line_events import CALLED, PAUSED, RETURNED
from trackside.profiling.line_recorder import Recorder

__all__ = ["MonitoringHooks", "free_tool_id"]

_NAME = "trackside line log"
# 0 to 2 and 5 are meant for debuggers, coverage, profilers and optimizers, which may come later.
_IDS = (3, 4, 2, 5, 1, 0)
# After a line that is not muted in the midst of muted ones, these get their events back for one round, or
# their time would count as that line's. How long that takes depends on the size of the code: it may happen
# this often, or after so many times what it takes. In code that is muted whole, the return must come back.
_REARM_NS, _REARM_COSTS = 100_000, 20


def free_tool_id() -> int | None:
    """A tool id of `sys.monitoring` that nobody uses."""
    monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 - unknown to the checker's oldest Python
    return next((one for one in _IDS if monitoring.get_tool(one) is None), None)


class MonitoringHooks:
    """Callbacks that append to a recorder, from `install` to `remove`.

    Args:
        tick: called about every millisecond from the thread that installs, while it runs the user's code.
    """

    def __init__(self, recorder: Recorder, tick: Callable[[], None] | None = None) -> None:
        self._recorder = recorder
        self._tick = tick
        self._monitoring: Any = getattr(sys, "monitoring")  # noqa: B009
        events = self._monitoring.events
        self._local = events.LINE | events.PY_RETURN | events.PY_YIELD
        self._global = events.PY_START | events.PY_RESUME | events.PY_THROW | events.PY_UNWIND
        self._armed: dict[int, int] = {}
        """id(code) → the number of the event that its call is."""
        self._tool = -1
        self._installed = False
        self._callbacks: dict[int, Any] = {}

    def install(self) -> None:
        """Takes a tool id, and arms what runs already."""
        found = free_tool_id()
        assert found is not None, "the caller has looked"
        self._monitoring.use_tool_id(found, _NAME)
        self._tool, self._installed = found, True
        self._callbacks = self._make_callbacks()
        for event, callback in self._callbacks.items():
            self._monitoring.register_callback(self._tool, event, callback)
        for ident, top in sys._current_frames().items():
            self._recorder.add_thread(ident, top)
            frame: FrameType | None = top
            while frame is not None:
                self._arm(frame.f_code)
                frame = frame.f_back
        self._monitoring.set_events(self._tool, self._global)

    def remove(self) -> None:
        """Leaves nothing behind; a second time does nothing."""
        if not self._installed:
            return
        self._installed = False
        self._monitoring.set_events(self._tool, 0)
        for code in self._recorder.codes:
            self._monitoring.set_local_events(self._tool, code, 0)
        self._armed.clear()
        for event in self._callbacks:
            self._monitoring.register_callback(self._tool, event, None)
        self._monitoring.free_tool_id(self._tool)
        # Or what was switched off stays off for the next tool of this id.
        self._monitoring.restart_events()

    def _arm(self, code: CodeType) -> int | None:
        """Has the code's lines and returns reported, if it is the user's; then the number of its call."""
        if not self._recorder.wants(code):
            return None
        self._watch(code, self._local)
        self._armed[id(code)] = CALLED - code.co_firstlineno
        return self._armed[id(code)]

    def _watch(self, code: CodeType, events: int) -> None:
        # Another thread may have given the id back since this one entered its callback.
        with suppress(ValueError):
            self._monitoring.set_local_events(self._tool, code, events)

    def _make_callbacks(self) -> dict[int, Any]:
        # Closures, since every name that is looked up elsewhere costs each event some nanoseconds.
        now, DISABLE = time.perf_counter_ns, self._monitoring.DISABLE
        recorder, armed, arm, tick = self._recorder, self._armed, self._arm, self._tick
        pending, extend = recorder.pending, recorder.pending.extend
        hot, silent = recorder.hot, recorder.silent
        watch, mask = self._watch, self._local
        home, process = get_ident(), os.getpid()
        met = threading.local()
        muting = False
        due = now() + recorder.housekeeping_ns
        rearm_at: dict[int, int] = {}
        rearm_ns: dict[int, int] = {}
        resumed: dict[int, dict[int, int]] = {}

        def line(code: CodeType, number: int) -> object:
            t = now()
            if muting and hot[id(code)] and is_muted(t, code, number):
                return DISABLE
            extend((t, get_ident(), code, number))
            if t >= due:
                housekeep(code)
            return None

        def start(code: CodeType, offset: int) -> object:
            t = now()
            number = armed.get(id(code))
            known = number is not None
            if not known and (number := arm(code)) is None:
                return DISABLE
            try:
                met.here  # noqa: B018 - asks whether this thread was here before
            except AttributeError:
                known = meet_thread()
            extend((t, get_ident(), code, number))
            if not known:
                extend((now(), get_ident(), code, PAUSED))
            return None

        def resume(code: CodeType, offset: int, error: BaseException | None = None) -> object:
            t = now()
            known = True
            try:
                number = resumed[id(code)][offset]
            except KeyError:
                if id(code) not in armed and arm(code) is None:
                    return DISABLE if error is None else None  # what is thrown cannot be switched off
                known, number = False, line_of(code, offset)
            try:
                met.here  # noqa: B018
            except AttributeError:
                known = meet_thread()
            extend((t, get_ident(), code, number))
            if not known:
                extend((now(), get_ident(), code, PAUSED))
            if t >= due:  # a generator on one line has no events of lines
                housekeep(code)
            return None

        def leave(code: CodeType, offset: int, value: object) -> object:
            extend((now(), get_ident(), code, RETURNED))
            return DISABLE if id(code) in silent else None

        def unwind(code: CodeType, offset: int, error: BaseException) -> None:
            if id(code) in hot:  # of the user's; nothing is switched off here
                extend((now(), get_ident(), code, RETURNED))

        def is_muted(t: int, code: CodeType, number: int) -> bool:
            """Whether to switch the place off: it is in a group, and not the first of the group in a row."""
            group = hot[id(code)].get(number)
            if group is None:
                if id(code) in silent or t > rearm_at.get(id(code), 0):
                    watch(code, 0)
                    watch(code, mask)
                    rearm_ns[id(code)] = min(rearm_ns.get(id(code), _REARM_NS), now() - t)
                    rearm_at[id(code)] = t + max(_REARM_NS, _REARM_COSTS * rearm_ns[id(code)])
                return False
            if id(code) in silent:
                return True
            me, at = get_ident(), len(pending) - 4
            try:
                while at >= 0 and pending[at + 1] != me:
                    at -= 4
                return at >= 0 and pending[at + 2] is code and pending[at + 3] in group
            except IndexError:  # another thread packs just now
                return False

        def meet_thread() -> bool:
            met.here = True
            recorder.add_thread(get_ident())
            return False

        def line_of(code: CodeType, offset: int) -> int:
            line = next((at for first, last, at in code.co_lines() if first <= offset < last and at), 0)
            number = CALLED - (line or code.co_firstlineno)
            resumed.setdefault(id(code), {})[offset] = number
            return number

        def housekeep(code: CodeType) -> None:
            nonlocal due, muting
            if os.getpid() != process:  # a forked child: nobody will ask for its log
                self.remove()
                return
            t, here = now(), get_ident() == home
            if tick is not None and not here and t < due + recorder.housekeeping_ns:
                return  # the thread that ticks goes first
            due = t + recorder.housekeeping_ns
            recorder.take()
            while recorder.silenced:
                # Its other events end one by one, as they come.
                gone = id(recorder.silenced.pop())
                armed.pop(gone, None)
                resumed.pop(gone, None)
            muting = recorder.muting
            if tick is not None and here:
                tick()
            extend((now(), get_ident(), code, PAUSED))
            if recorder.full:
                self.remove()

        events = self._monitoring.events
        return {
            events.LINE: line,
            events.PY_START: start,
            events.PY_RESUME: resume,
            events.PY_THROW: resume,
            events.PY_RETURN: leave,
            events.PY_YIELD: leave,
            events.PY_UNWIND: unwind,
        }
