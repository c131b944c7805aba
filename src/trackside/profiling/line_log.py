"""A line log: which line of the user's code runs when, on each thread, by `time.perf_counter_ns`.

Runs inside the user's process, so it imports little. Profiler events are joined to its lines by time: the
profiler needs no stacks, and the program no ranges.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

from trackside.profiling.line_events import Costs, LineEvents
from trackside.profiling.line_far import far_entries
from trackside.profiling.line_monitoring import MonitoringHooks, free_tool_id
from trackside.profiling.line_recorder import Recorder
from trackside.profiling.line_settrace import SettraceHooks

__all__ = ["LineLog", "LineLogUnavailable"]

MOST_EVENTS = 2_000_000  # 64 MB

# The calibration: short, since it runs inside the user's program, and with lines as loops have them, since an
# event costs more on a line that does more.
_ROUNDS, _LOOPS, _FEW = 20, 50, 1
_FAR_LINES = 250
_NEVER = 1 << 60  # ns
_FILE = "<trackside calibration>"
_SOURCE = (
    """\
def lines(n):
    a, t = 0, (1, 2, 3, 4)
    for i in range(n):
        a += i & 7
        b = a * 3
        c = t[i & 3]
        d = b < c

def called(n):
    return n

def calls(n):
    for i in range(n):
        called(i)

def far(n):
"""
    + "    n = n\n" * _FAR_LINES
)


class LineLogUnavailable(RuntimeError):
    """Lines cannot be logged here; the message says why."""


class LineLog:
    """Logs the lines of the user's code from `start` to `stop`; may be started again after that.

    Args:
        is_user: whether a file, as named by its code objects, is the user's. Asked once for each file.
        most_events: where the log ends itself, to bound its memory at 32 bytes an event.
        tick: called about every millisecond from the thread that starts the log, while in the user's code.
    """

    def __init__(
        self,
        is_user: Callable[[str], bool],
        *,
        most_events: int = MOST_EVENTS,
        tick: Callable[[], None] | None = None,
    ) -> None:
        self._is_user = is_user
        self._most_events = most_events
        self._tick = tick
        self._running: tuple[Recorder, MonitoringHooks | SettraceHooks, int] | None = None

    def start(self) -> None:
        """Begins a new log.

        Raises:
            LineLogUnavailable: another tool has what the log needs.
        """
        if self._running is not None:
            raise RuntimeError("the line log runs already; stop it first")
        _check_available()
        costs = _calibrate()
        recorder = Recorder(self._is_user, self._most_events, costs)
        hooks = _hooks(recorder, _guarded(self._tick, recorder.notes))
        hooks.install()
        self._running = recorder, hooks, time.perf_counter_ns()

    def stop(self) -> LineEvents:
        """Ends the log and leaves the interpreter as it was."""
        stop = time.perf_counter_ns()
        if self._running is None:
            raise RuntimeError("the line log does not run; start it first")
        recorder, hooks, start = self._running
        self._running = None
        hooks.remove()
        return recorder.events(start, stop)


def _guarded(tick: Callable[[], None] | None, notes: list[str]) -> Callable[[], None] | None:
    """The same, but an error in it does not surface in the user's program."""
    if tick is None:
        return None
    failed = False

    def guarded() -> None:
        nonlocal failed
        if not failed:
            try:
                tick()
            except Exception as error:
                failed = True
                notes.append(f"the call at every tick failed with {error!r} and was not made again")

    return guarded


def _hooks(recorder: Recorder, tick: Callable[[], None] | None = None) -> MonitoringHooks | SettraceHooks:
    return (MonitoringHooks if hasattr(sys, "monitoring") else SettraceHooks)(recorder, tick)


def _check_available() -> None:
    if hasattr(sys, "monitoring"):
        if free_tool_id() is None:
            tools = ", ".join(str(sys.monitoring.get_tool(one)) for one in range(6))
            raise LineLogUnavailable(
                f"lines cannot be logged because all six tool ids of sys.monitoring are taken: {tools}; "
                "run the program without one of them"
            )
        return
    for name, found in (("sys.settrace", sys.gettrace()), ("threading.settrace", threading.gettrace())):
        if found is not None:
            raise LineLogUnavailable(
                f"lines cannot be logged because {name} already holds a trace function ({found!r}), as of a "
                "debugger or a coverage tool; run the program without it, or on Python 3.12 or later"
            )


def _calibrate() -> Costs:
    """What events cost here and now, by programs that run with and without the hooks."""
    names: dict[str, Any] = {}
    exec(compile(_SOURCE, _FILE, "exec"), names)
    lines, calls, called = names["lines"], names["calls"], names["called"]
    plain_lines, plain_calls = _usual(lines), _usual(calls)
    # Five lines a round in `lines`; in `calls` three lines, one of them in `called`, a call and a return.
    line = max(0.0, (_logged(lines) - plain_lines) / 5)
    call = max(0.0, (_logged(calls) - plain_calls - 3 * line) / 2)
    if hasattr(sys, "monitoring"):  # what is muted has no events
        far = names["far"]
        entries = sum(far_entries(far.__code__).values())
        more = _logged(far, loops=_FEW) - _usual(far, _FEW) - _FAR_LINES * line
        return Costs(line, call, far_entry_ns=max(0.0, more / entries), plain_line_ns=plain_lines / 5)
    muted_line = max(0.0, (_logged(lines, muted=range(3, 8)) - plain_lines) / 5)
    silent = _logged(calls, muted=range(13, 15), silent=called.__code__)
    skipped_call = max(0.0, silent - plain_calls - 2 * muted_line)
    return Costs(line, call, muted_line, skipped_call, plain_line_ns=plain_lines / 5)


def _logged(
    function: Callable[[int], None],
    muted: Iterable[int] = (),
    silent: CodeType | None = None,
    loops: int = _LOOPS,
) -> float:
    """How long a round usually takes under the hooks, with those lines and that code object muted."""
    recorder = Recorder(lambda file: file == _FILE, MOST_EVENTS, Costs(), housekeeping_ns=_NEVER)
    recorder.wants(function.__code__)
    recorder.mute(function.__code__, muted)
    if silent is not None:
        recorder.wants(silent)
        recorder.silence(silent, [10])
    hooks = _hooks(recorder)
    hooks.install()
    try:
        return _usual(function, loops)
    finally:
        hooks.remove()


def _usual(function: Callable[[int], None], loops: int = _LOOPS) -> float:
    """Nanoseconds a round, by the lower quartile: neither luck nor what else the machine does."""
    took = []
    for _ in range(_ROUNDS):
        start = time.perf_counter_ns()
        function(loops)
        took.append(time.perf_counter_ns() - start)
    return sorted(took)[_ROUNDS // 4] / loops
