"""The capture: follows the program's steps through its windows, and leaves what it saw in a folder.

Runs in the program's process, with the standard library alone; of torch it uses what the program has
imported. Whatever fails in here ends the capture and not the program.

    windows.json    the steps of each window, on our clock
    trace-T.json    the profiler's trace without, trace-B.json with the line log
    lines-B.json    that log, with the markers that join the clocks
"""

from __future__ import annotations

import json
import os
import site
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from types import ModuleType
from typing import Any

from trackside.profiling.inside import Setting
from trackside.profiling.line_events import LineEvents
from trackside.profiling.line_log import LineLog, LineLogUnavailable
from trackside.profiling.markers import ClockMarkers
from trackside.profiling.on_import import when_imported
from trackside.profiling.steps_live import OptimizerSteps
from trackside.profiling.windows import Limits, Stage, Windows

__all__ = ["around", "is_users"]

_clock = time.perf_counter_ns
# Kineto tells the terminal when it starts and stops; above every level of its own it does not.
_KINETO_LEVEL = "KINETO_LOG_LEVEL"


@contextmanager
def around(setting: Setting) -> Iterator[None]:
    """The capture around a program."""
    capture = Capture(setting)
    when_imported("torch", capture.begin)
    try:
        yield
    finally:
        capture.finish()


def is_users() -> Callable[[str], bool]:
    """Whether a file is the program's own: not Python's, not an installed package's, not generated."""
    paths = sysconfig.get_paths()
    others = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths}
    others |= {*site.getsitepackages(), site.getusersitepackages()}
    others.add(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    prefixes = tuple(os.path.join(os.path.realpath(path), "") for path in others)

    def check(file: str) -> bool:
        if file.startswith("<") or "torchinductor_" in file:
            return False
        return not os.path.realpath(file).startswith(prefixes)

    return check


class Capture:
    """One program's windows."""

    def __init__(self, setting: Setting) -> None:
        self._folder = setting.folder
        self._say = setting.messages.send
        asked = setting.configuration
        self._limits = Limits(asked.get("warmup"), asked.get("steps"), asked.get("seconds"))
        self._windows: Windows | None = None
        self._steps = OptimizerSteps(self._step_ended)
        self._profiler: Any = None
        self._markers: ClockMarkers | None = None
        self._log: LineLog | None = None
        self._trouble: list[str] = []
        self._closed: dict[str, int] = {}
        self._awaited: Stage | None = None
        self._is_users = is_users()

    def begin(self, torch: ModuleType) -> None:
        """Torch has been imported: from now on there are steps."""
        self._guarded(self._begin)

    def _begin(self) -> None:
        self._steps.watch()
        self._windows = Windows(self._limits, _clock())
        self._say("torch", version=str(sys.modules["torch"].__version__))

    def finish(self) -> None:
        """The program has ended, wherever it was."""
        windows = self._windows
        if windows is not None and windows.stage is not Stage.DONE:
            self._guarded(lambda: self._change(Stage.DONE))
        self._steps.close()
        self._guarded(self._write_windows)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._trouble.append(f"{type(error).__name__}: {error}")
            self._steps.close()
            if self._windows is not None:
                self._windows.begin(Stage.DONE, _clock())
            self._tear_down()
            self._say("trouble", text=self._trouble[-1][:1000])

    def _tear_down(self) -> None:
        """Take what still runs out of the program: its later steps are its own."""
        log, profiler = self._log, self._profiler
        self._log = self._profiler = self._markers = None
        if log is not None:
            with suppress(Exception):
                log.stop()
        if profiler is not None:
            # It may have stopped already, or never have begun.
            with suppress(Exception), _quiet_kineto():
                profiler.stop()

    def _step_ended(self) -> None:
        self._guarded(self._count_step)

    def _count_step(self) -> None:
        windows = self._windows
        if windows is None or windows.stage is Stage.DONE:
            return
        if self._markers is not None:
            self._markers.tick()
        if self._awaited is not None:
            following, self._awaited = self._awaited, None
            self._enter(following)
            return
        following = windows.step_ended(_clock())
        if following is not windows.stage:
            self._change(following)

    # -- windows ---------------------------------------------------------------------------------

    def _change(self, following: Stage) -> None:
        """End one window and begin another; what that takes belongs to neither."""
        windows = self._windows
        assert windows is not None
        self._wait_for_device()
        if self._awaited is not None:
            # The program ends in the step between two traces: the first was ended in its time.
            self._awaited = None
        else:
            self._closed[windows.stage.value] = _clock()
            traced = windows.stage in (Stage.TRACED, Stage.ATTRIBUTED)
            if traced:
                self._end_trace(windows.stage)
            self._say("window", name=windows.stage.value, steps=len(windows.now.ends_ns))
            if traced and following is Stage.ATTRIBUTED:
                # We are called from inside torch's own range around the optimizer's step. If a second
                # profiler ran when that range ends, it would write into the first one's freed memory; so a
                # step passes without one.
                self._awaited = following
                return
        self._enter(following)

    def _enter(self, following: Stage) -> None:
        windows = self._windows
        assert windows is not None
        if following in (Stage.TRACED, Stage.ATTRIBUTED):
            self._begin_trace(following)
        windows.begin(following, _clock())
        if following is Stage.DONE:
            self._steps.close()
        self._write_windows()

    def _wait_for_device(self) -> None:
        cuda = getattr(sys.modules["torch"], "cuda", None)
        if cuda is not None and cuda.is_initialized():
            cuda.synchronize()

    def _begin_trace(self, stage: Stage) -> None:
        torch: Any = sys.modules["torch"]
        if torch._C._autograd._profiler_enabled():
            raise RuntimeError("the program runs a profiler of its own, and there can be one only")
        kinds = torch.profiler.ProfilerActivity
        activities = [kinds.CPU, *([kinds.CUDA] if torch.cuda.is_initialized() else [])]
        # Without memory: its events would have the allocator write warnings into the program's output.
        self._profiler = torch.profiler.profile(activities=activities, record_shapes=True)
        with _quiet_kineto():
            self._profiler.start()
        if stage is Stage.ATTRIBUTED:
            self._begin_log()

    def _begin_log(self) -> None:
        self._markers = ClockMarkers()
        self._markers.begin()
        log = LineLog(self._is_users, tick=self._markers.tick)
        try:
            log.start()
        except LineLogUnavailable as error:
            self._trouble.append(f"lines: {error}")
            return
        self._log = log

    def _end_trace(self, stage: Stage) -> None:
        events = self._log.stop() if self._log is not None else None
        self._log = None
        if self._markers is not None:
            self._markers.end()
        self._wait_for_device()
        with _quiet_kineto():
            self._profiler.stop()
        profiler, self._profiler = self._profiler, None
        profiler.export_chrome_trace(os.path.join(self._folder, f"trace-{stage.value}.json"))
        if events is not None:
            self._write(f"lines-{stage.value}.json", self._told(events))
        self._markers = None

    def _told(self, events: LineEvents) -> dict[str, Any]:
        assert self._markers is not None
        columns = {name: list(getattr(events, name)) for name in ("times", "threads", "codes", "numbers")}
        return {
            "start_ns": events.start_ns,
            "stop_ns": events.stop_ns,
            **columns,
            "places": [asdict(place) for place in events.places],
            "thread_starts": [asdict(thread) for thread in events.thread_starts],
            "mutes": [asdict(mute) for mute in events.mutes],
            "costs": asdict(events.costs),
            "incomplete": list(events.incomplete),
            "markers": [asdict(marker) for marker in self._markers.markers],
        }

    # -- files -----------------------------------------------------------------------------------

    def _write_windows(self) -> None:
        windows = self._windows
        told = [*windows.past, windows.now] if windows is not None else []
        self._write(
            "windows.json",
            {
                "windows": [
                    {
                        "stage": one.stage.value,
                        "began_ns": one.began_ns,
                        "ends_ns": one.ends_ns,
                        "closed_ns": self._closed.get(one.stage.value),
                    }
                    for one in told
                ],
                "trouble": self._trouble,
            },
        )

    def _write(self, name: str, document: dict[str, Any]) -> None:
        """Whole or not at all: the program may be killed meanwhile."""
        path = os.path.join(self._folder, name)
        with open(f"{path}.part", "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.replace(f"{path}.part", path)


@contextmanager
def _quiet_kineto() -> Iterator[None]:
    """The program's own setting, if it has one, stands."""
    mine = _KINETO_LEVEL not in os.environ
    if mine:
        os.environ[_KINETO_LEVEL] = "99"
    try:
        yield
    finally:
        if mine:
            os.environ.pop(_KINETO_LEVEL, None)
