"""The hooks of a line log on Python 3.11: `sys.settrace`, for this thread and those that start later."""

import os
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, cast

from trackside.profiling.line_events import CALLED, PAUSED, RAISED, RETURNED, SKIPPED_CALLS, SKIPPED_LINES
from trackside.profiling.line_recorder import Recorder

__all__ = ["SettraceHooks"]

_NONE: frozenset[int] = frozenset()
# What is skipped is counted in one number: calls, and above these bits lines.
_LINE = 1 << 32

_Trace = Callable[[FrameType, str, Any], Any]


class SettraceHooks:
    """Trace functions that append to a recorder, from `install` to `remove`.

    Args:
        tick: called about every millisecond from the thread that installs, while it runs the user's code.
    """

    def __init__(self, recorder: Recorder, tick: Callable[[], None] | None = None) -> None:
        self._recorder = recorder
        self._tick = tick
        self._home = threading.get_ident()
        self._newcomer: _Trace | None = None
        self._entries: list[_Trace] = []
        """One for each thread; the first is that of the thread that installs."""
        self._locals: set[_Trace] = set()
        self._expire: Callable[[], None] = lambda: None
        self._removed = False

    def install(self) -> None:
        """Traces this thread, its running frames included, and those that start from now on."""
        running = [one.name for one in threading.enumerate() if one.ident != self._home]
        others = [name for name in running if not name.startswith("trackside-")]
        if others:
            self._recorder.notes.append(
                f"threads that ran before the log began are not in it: {', '.join(others)}; "
                "Python 3.12 and later sees them"
            )
        trace_thread = self._make_tracers()

        def newcomer(frame: FrameType, event: str, arg: object) -> Any:
            enter = trace_thread(None)
            sys.settrace(enter)
            return enter(frame, event, arg)

        enter = trace_thread(sys._getframe())
        self._newcomer = newcomer
        threading.settrace(newcomer)
        sys.settrace(enter)

    def remove(self) -> None:
        """Leaves nothing behind; other threads take their trace function off at their next event."""
        present, full = sys.gettrace(), self._recorder.full
        self._expire()
        if threading.gettrace() is self._newcomer:
            threading.settrace(cast(Any, None))
        if present in self._entries:
            sys.settrace(None)
        elif threading.get_ident() == self._home and not self._removed and not full:
            self._recorder.notes.append(
                "the program took the trace function off, or an error in it did, before the window ended; "
                "what ran after that is missing"
            )
        for top in sys._current_frames().values():
            frame: FrameType | None = top
            while frame is not None:
                if frame.f_trace in self._locals:
                    frame.f_trace = None
                frame = frame.f_back
        self._removed = True

    def _make_tracers(self) -> Callable[[FrameType | None], _Trace]:
        # Closures, since every name that is looked up elsewhere costs each event some nanoseconds.
        now, recorder, tick = time.perf_counter_ns, self._recorder, self._tick
        extend, foreign, silent = recorder.pending.extend, recorder.foreign, recorder.silent
        process = os.getpid()
        ended = False
        due = now() + recorder.housekeeping_ns

        def expire() -> None:
            nonlocal due, ended
            due, ended = 0, True

        def housekeep(frame: FrameType, code: CodeType, thread: int) -> None:
            nonlocal due
            if ended or os.getpid() != process:  # of a forked child nobody will ask for the log
                recorder.pending.clear()
                frame.f_trace = None
                if sys.gettrace() in self._entries:
                    sys.settrace(None)
                return
            t, here = now(), threading.get_ident() == self._home
            if tick is not None and not here and t < due + recorder.housekeeping_ns:
                return  # the thread that ticks goes first
            due = t + recorder.housekeeping_ns
            recorder.take()
            if tick is not None and here:
                tick()
            extend((now(), thread, code, PAUSED))
            if recorder.full:
                self.remove()

        def trace_thread(top: FrameType | None) -> _Trace:
            me = recorder.add_thread(None, top)
            quiet = _NONE  # lines to ignore: those muted together with the last one logged
            skipped = 0
            tracers: dict[int, _Trace] = {}
            hushes: dict[int, _Trace | None] = {}

            def enter(frame: FrameType, event: str, arg: object) -> _Trace | None:
                nonlocal quiet, skipped
                if ended:
                    sys.settrace(None)
                    return None
                code = frame.f_code
                if code.co_filename in foreign:
                    skipped += 1
                    return None
                if id(code) in silent:
                    skipped += 1
                    return hushes[id(code)] if id(code) in hushes else hushed(code)
                t = now()
                trace = tracers.get(id(code))
                known = trace is not None
                if not known and (trace := meet(code)) is None:
                    return None
                if skipped:
                    flush(t, code)
                extend((t, me, code, CALLED - (frame.f_lineno or 0)))
                if not known:
                    extend((now(), me, code, PAUSED))
                quiet = _NONE
                return trace

            def meet(code: CodeType) -> _Trace | None:
                return tracer(code) if recorder.wants(code) else None

            def tracer(code: CodeType) -> _Trace:
                hot = recorder.hot[id(code)]

                def trace(frame: FrameType, event: str, arg: object) -> _Trace | None:
                    nonlocal quiet, skipped
                    if event == "line":
                        number = frame.f_lineno
                        if number in quiet:
                            skipped += _LINE
                            return trace
                        t = now()
                        if skipped:
                            flush(t, code)
                        extend((t, me, code, number))
                        quiet = hot.get(number, _NONE) if hot else _NONE
                    else:
                        t = now()
                        if skipped:
                            flush(t, code)
                        extend(
                            (t, me, code, RETURNED if event == "return" else RAISED - (frame.f_lineno or 0))
                        )
                        quiet = _NONE
                    if t >= due:
                        housekeep(frame, code, me)
                        if frame.f_trace is trace and id(code) in silent:
                            frame.f_trace = hushed(code)
                        return frame.f_trace
                    return trace

                tracers[id(code)] = trace
                self._locals.add(trace)
                return trace

            def hushed(code: CodeType) -> _Trace | None:
                """For code that is muted whole: nothing, or what waits for a line that was never seen."""
                hot = recorder.hot[id(code)]
                lines = {line for _, _, line in code.co_lines() if line} - {code.co_firstlineno}

                def hush(frame: FrameType, event: str, arg: object) -> _Trace:
                    nonlocal skipped
                    if event == "line" and frame.f_lineno not in hot:
                        return rare(frame, event, arg)
                    skipped += _LINE
                    return hush

                def rare(frame: FrameType, event: str, arg: object) -> _Trace:
                    nonlocal quiet
                    if event == "return" or (event == "line" and frame.f_lineno not in hot):
                        t = now()
                        if skipped:
                            flush(t, code)
                        extend((t, me, code, frame.f_lineno if event == "line" else RETURNED))
                        quiet = _NONE
                    return rare

                self._locals |= {hush, rare}
                hushes[id(code)] = None if lines <= hot.keys() else hush
                return hushes[id(code)]

            def flush(t: int, code: CodeType) -> None:
                nonlocal skipped
                lines, calls = divmod(skipped, _LINE)
                skipped = 0
                if calls:
                    extend((t, me, code, SKIPPED_CALLS - calls))
                if lines:
                    extend((t, me, code, SKIPPED_LINES - lines))

            while top is not None:
                trace = tracers.get(id(top.f_code)) or meet(top.f_code)
                if trace is not None:
                    top.f_trace = trace
                top = top.f_back
            self._entries.append(enter)
            return enter

        self._expire = expire
        return trace_thread
