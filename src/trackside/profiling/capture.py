"""The capture: follows the program's steps through its windows, and leaves what it saw in a folder.

Runs in the program's process, with the standard library alone; of torch it uses what the program has
imported. Whatever fails in here ends the capture and not the program. A program whose optimizer takes no
step has its windows by the clock, changed by its main thread where it is between two bytecodes; from an
optimizer's first step on they go by steps, and what the clock gave stands until steps have given the same.

    windows.json   the steps of each window, on our clock
    inputs.json    what operators were called with, where the trace does not say it
    trace.json     the profiler's trace of the windows T and B
    lines.json     the line log of B, and the markers that join the clocks
    modules.json   which of its modules ran when in B
    memory.json    what a GPU's allocator did in B, and where parameters and the like lie
    sources.json   the files that it names, as they were then
    compiled.json  what torch.compile made of which lines
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import ModuleType
from typing import TYPE_CHECKING

from trackside.profiling.compiled_code import CompiledCode
from trackside.profiling.handler_errors import is_a_handlers
from trackside.profiling.heap import can_keep_memory, keep_memory, takes_memory_anew
from trackside.profiling.inputs_log import STEPS_NOTED
from trackside.profiling.inside import Setting
from trackside.profiling.on_import import when_imported
from trackside.profiling.progress import progress_meter
from trackside.profiling.rank_clock import RankClock
from trackside.profiling.recording import (
    Recording,
    compilations,
    core_times_ns,
    device_may_come,
    page_faults,
    peak_bytes,
    uses_device,
    wait_for_device,
    write_json,
)
from trackside.profiling.safe_point import SafePoint
from trackside.profiling.source_bytes import source_bytes
from trackside.profiling.steps_live import OptimizerSteps
from trackside.profiling.watcher import Watcher
from trackside.profiling.windows import MAX_TRACE, Limits, Stage, Stretches, Window, Windows

if TYPE_CHECKING:
    from trackside.profiling.trace_size import TraceSize

__all__ = ["around", "is_users"]

_clock = time.perf_counter_ns
# How often to look at the clock: while windows go by it, and while they go by steps, untraced and traced.
_TICK_S, _SLOW_TICK_S, _TRACED_TICK_S = 0.05, 1.0, 0.2
# Where a moment did not suit, the next may: few do in a program that is compiled.
_NEXT_MOMENT_S, _MOMENTS = 0.002, 1000
# How long after torch was imported an optimizer that was made may take to its first step, and the program to
# use a GPU that there is, before windows go by the clock.
_STEPS_PATIENCE_S, _DEVICE_PATIENCE_S = 30.0, 5.0
# Steps of warm-up in which it is noted what operators are called with: behind the first, which sets all up.
_NOTED = range(1, 1 + STEPS_NOTED)
# A round in which something was compiled is done again, so many times at most.
_MOST_REPEATS = 4
# How Inductor calls what it writes, wherever TORCHINDUCTOR_CACHE_DIR has it: ab/cab... of a hash in base 32.
_INDUCTORS = re.compile(r"/([a-z2-7]{2})/c\1[a-z2-7]{49}\.py$")


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
        # What a cell of a notebook is called in a terminal.
        if file.startswith("<ipython-input-"):
            return True
        if file.startswith("<") or "torchinductor_" in file or _INDUCTORS.search(file):
            return False
        return not os.path.realpath(file).startswith(prefixes)

    return check


class Capture:
    """One program's windows."""

    def __init__(self, setting: Setting) -> None:
        self._folder = setting.folder
        self._say = setting.messages.send
        asked = setting.configuration
        self._limits = Limits(
            asked.get("warmup"),
            asked.get("steps"),
            asked.get("seconds"),
            bool(asked.get("fixed")),
            asked.get("max_trace", MAX_TRACE),
        )
        self._size: TraceSize | None = None
        self._cuts: list[str] = []
        """What was ended early because the trace would have become too large."""
        self._rank_clock = RankClock(**asked["rank_clock"]) if asked.get("rank_clock") else None
        self._pid = os.getpid()
        self._trouble: list[str] = []
        self._steps = OptimizerSteps(self._step_ended)
        self._recording = Recording(setting.folder, is_users(), self._trouble.append, self._steps.optimizers)
        self._compiled_code = CompiledCode(is_users())
        self._windows: Windows | None = None
        self._whole: Windows | None = None
        """Windows that all have been, until others have: those of an earlier round."""
        self._stretches: Stretches | None = None
        """While windows go by the clock."""
        self._safe_point: SafePoint | None = None
        self._watcher = Watcher(self._look)
        self._compiled = self._repeats = 0
        self._heap_told = False
        self._meter: Callable[[], int] | None = None
        self._from_start = bool(asked.get("from_start"))
        """Whether everything is recorded from the start: what is captured may be over before its windows."""
        self._all_since_ns: int | None = None
        """While everything is recorded."""
        self._beginning: Windows | None = None
        """What was recorded until the first window, as windows."""

    def begin(self, torch: ModuleType) -> None:
        """Torch has been imported: from now on there are steps."""
        self._guarded(self._begin)

    def _begin(self) -> None:
        # Here, since a program without torch may never import what it needs.
        from trackside.profiling.trace_size import TraceSize

        now = _clock()
        self._steps.watch()
        self._windows = Windows(self._limits, now)
        self._size = TraceSize(self._limits.max_trace)
        self._compiled_code.watch()
        self._say("torch", version=str(sys.modules["torch"].__version__))
        if threading.current_thread() is threading.main_thread():
            self._meter = progress_meter()
            if self._rank_clock is not None:
                self._rank_clock.arrive(now)
            origin = self._rank_clock.origin_ns if self._rank_clock is not None else None
            self._stretches = Stretches(self._limits, now, origin)
            self._safe_point = SafePoint(lambda: self._guarded(self._change_by_time))
            self._watcher.start(_TICK_S)
        if self._from_start:
            self._size.begin()
            self._recording.begin()
            self._recording.begin_log()
            self._all_since_ns = _clock()

    def finish(self) -> None:
        """The program has ended, wherever it was."""
        ended = _clock()
        if self._all_since_ns is not None:
            # Before anything else: it would be the time of the block's last line.
            self._guarded(self._recording.end_log)
        self._watcher.close()
        self._guarded(self._recording.drop_inputs)
        if self._all_since_ns is not None:
            self._guarded(lambda: self._keep_all(ended))
        windows = self._windows
        if windows is not None and windows.stage is not Stage.DONE:
            windows.now.cut = True
            self._guarded(lambda: self._change(Stage.DONE))
        self._steps.close()
        self._compiled_code.close()
        self._guarded(self._write_windows)

    def _guarded(self, work: Callable[[], None]) -> None:
        if os.getpid() != self._pid:
            # A process that the program forked: what it does is not captured.
            self._steps.close()
            return
        try:
            work()
        except BaseException as error:
            if isinstance(error, Exception) and not is_a_handlers(error):
                self._give_up(f"{type(error).__name__}: {error}")
                return
            # A handler of the program's raised it, for a signal; the program will see it.
            self._give_up("a signal came while a window was being changed")
            raise

    def _give_up(self, why: str) -> None:
        """Take ourselves out of the program: its later steps are its own."""
        self._trouble.append(why)
        self._steps.close()
        self._watcher.close()
        if self._windows is not None:
            self._windows.begin(Stage.DONE, _clock())
        self._recording.drop()
        self._say("trouble", text=why[:1000])

    # -- steps, and the clock --------------------------------------------------------------------

    def _step_ended(self) -> None:
        self._guarded(self._count_step)

    def _count_step(self) -> None:
        if self._stretches is not None:
            self._go_by_steps()
        windows = self._windows
        if windows is None or windows.stage is Stage.DONE:
            return
        self._recording.tick()
        following = windows.step_ended(_clock())
        if windows.stage is Stage.WARM:
            self._note_inputs(len(windows.now.ends_ns), following)
        if following is windows.stage and self._is_full(windows, self._size.now() if self._size else 0):
            following = windows.following
        if following is not windows.stage:
            self._change(following)

    def _note_inputs(self, warm: int, following: Stage) -> None:
        """After so many steps of warm-up."""
        if warm == _NOTED.stop:
            self._recording.end_inputs(STEPS_NOTED)
        elif following is not Stage.WARM:
            self._recording.drop_inputs()
        elif warm == _NOTED.start and self._all_since_ns is None:
            self._recording.begin_inputs()

    def _go_by_steps(self) -> None:
        windows, self._stretches = self._windows, None
        self._recording.forget_inputs()
        if windows is None or not windows.past:
            return
        if windows.stage in (Stage.KEPT, Stage.DONE):
            windows.now.cut = windows.stage is Stage.KEPT
            self._whole = windows
        else:
            self._recording.drop()
        self._say("steps")
        self._windows = Windows(self._limits, _clock())

    def _look(self) -> float | None:
        """In the watcher's thread: has the main thread change windows where that is due."""
        windows, point = self._windows, self._safe_point
        if windows is None or point is None or os.getpid() != self._pid:
            return None
        stretches = self._stretches
        if self._recording.is_awaited:
            point.ask()
            return _NEXT_MOMENT_S
        if self._all_since_ns is not None and self._overflows():
            point.ask()
            return _TRACED_TICK_S
        if stretches is None:
            if windows.is_stuck(_clock()) or self._overflows() or self._recording.inputs_overflow():
                point.ask()
            looked_at = (Stage.LOGGED, Stage.TRACED, Stage.ATTRIBUTED)
            return _TRACED_TICK_S if windows.stage in looked_at else _SLOW_TICK_S
        if self._due(windows, stretches) is not None or self._recording.inputs_overflow():
            point.ask()
            if 0 < point.refused <= _MOMENTS:
                return _NEXT_MOMENT_S
        elif windows.stage in (Stage.TIMED, Stage.KEPT):
            self._note_progress(windows.now)
        return _SLOW_TICK_S if stretches.over else _TICK_S

    def _due(self, windows: Windows, stretches: Stretches) -> Stage | None:
        due = stretches.due(windows.now, _clock())
        if due is None and self._is_full(windows, self._size.look() if self._size else 0):
            return windows.following
        return None if due is Stage.TIMED and self._is_early(stretches) else due

    def _is_early(self, stretches: Stretches) -> bool:
        """Whether better is to be expected soon: steps, or a device."""
        since = stretches.seconds(_clock())
        if since < _STEPS_PATIENCE_S and self._steps.may_come():
            return True
        return since < _DEVICE_PATIENCE_S and device_may_come()

    def _change_by_time(self) -> None:
        """In the main thread, wherever it is."""
        windows, stretches = self._windows, self._stretches
        if windows is None:
            return
        if self._recording.is_awaited:
            self._recording.tick()
            return
        if self._all_since_ns is not None and self._overflows():
            self._note_cut("what was recorded from the start was dropped")
            self._recording.drop()
            self._all_since_ns = None
            return
        if self._recording.inputs_overflow():
            self._recording.drop_inputs()
            return
        if stretches is None:
            stuck = windows.is_stuck(_clock())
            if stuck:
                self._trouble.append(f"steps ceased in window {windows.stage.value}")
            elif self._overflows():
                self._note_cut(f"window {windows.stage.value} was ended in the middle of a step")
            else:
                return
            windows.now.cut = True
            self._change(Stage.DONE)
            return
        due = self._due(windows, stretches)
        if due is None:
            return
        if windows.stage is Stage.TIMED and self._is_early(stretches):
            # An optimizer was made meanwhile.
            self._windows = Windows(self._limits, _clock())
            return
        if windows.stage is Stage.DONE:
            self._whole, self._windows = windows, Windows(self._limits, _clock())
        if due is Stage.TIMED:
            self._compiled = compilations()
        self._change(due)
        if due is Stage.DONE:
            # One of several ranks has its windows when the others have theirs.
            kept = windows.stage is Stage.DONE and windows.with_kept
            again = compilations() != self._compiled and not self._limits.fixed and not kept
            if again and self._repeats < _MOST_REPEATS:
                self._repeats += 1
                self._recording.forget_inputs()
            else:
                stretches.round_ended()

    def _is_full(self, windows: Windows, size: int) -> bool:
        """Whether a traced window has had its share of the trace: T half of it, B the rest."""
        most = {Stage.TRACED: 0.5, Stage.ATTRIBUTED: 1.0}.get(windows.stage)
        if most is None or size <= most * self._limits.max_trace:
            return False
        steps = len(windows.now.ends_ns)
        after = f"after {steps} step{'s' if steps != 1 else ''}" if steps else "early"
        self._note_cut(f"window {windows.stage.value} was ended {after}")
        return True

    def _overflows(self) -> bool:
        """Whether a trace becomes much too large where no step ends."""
        return self._size is not None and self._size.look() > 2 * self._limits.max_trace

    def _note_cut(self, what: str) -> None:
        # The watcher may find it before the program's thread does.
        if not any(what.startswith(known.partition(" was ")[0]) for known in self._cuts):
            size = (self._size.now() if self._size else 0) / 1e6
            self._cuts.append(f"{what}: it came to about {size:.0f} MB")

    def _note_progress(self, window: Window) -> None:
        if self._meter is not None:
            window.progress.append((_clock(), self._meter()))

    # -- windows ---------------------------------------------------------------------------------

    def _keep_all(self, ended_ns: int) -> None:
        """It was over before there were windows: all of it is one, traced and with lines."""
        windows, since = self._windows, self._all_since_ns
        assert windows is not None
        assert since is not None
        self._recording.end(aside=False)
        self._all_since_ns = None
        ends = [at for at in windows.now.ends_ns if at >= since]
        windows.by_time = not ends
        windows.past = [Window(stage, since, ends, ended_ns) for stage in (Stage.TRACED, Stage.ATTRIBUTED)]
        windows.now = Window(Stage.DONE, ended_ns)

    def _keep_beginning(self, windows: Windows) -> None:
        """What was recorded until now stands until windows have given the same: the block may end before."""
        since, self._all_since_ns = self._all_since_ns, None
        assert since is not None
        until = _clock()
        try:
            self._recording.end(aside=False)
        except RuntimeError:
            # A profiler of the program's own has come first.
            self._recording.drop()
            return
        ends = [at for at in windows.now.ends_ns if at >= since]
        if len(ends) > 1:
            # What is done once is done in the first.
            since, *ends = ends
        kept = Windows(self._limits, until)
        kept.by_time = not ends
        kept.past = [Window(stage, since, ends, until) for stage in (Stage.TRACED, Stage.ATTRIBUTED)]
        kept.now = Window(Stage.DONE, until)
        self._whole = self._beginning = kept

    def _change(self, following: Stage) -> None:
        """End one window and begin another; what that takes belongs to neither."""
        windows = self._windows
        assert windows is not None
        if self._all_since_ns is not None:
            self._keep_beginning(windows)
        windows.by_time = self._stretches is not None
        wait_for_device()
        ending = windows.now
        if windows.by_time:
            self._note_progress(ending)
        ending.closed_ns = _clock()
        _note_core(ending)
        if ending.stage is Stage.TIMED:
            self._look_at_heap(windows, ending)
        if ending.stage is Stage.NOTED:
            self._recording.end_inputs(steps=None)
        if ending.stage is Stage.LOGGED:
            self._recording.end_lines()
        if following is Stage.LOGGED and uses_device():
            # What a device runs tells the time there, as long as it always is.
            following = Stage.TRACED
        if following in (Stage.KEPT, Stage.DONE) and ending.stage in (Stage.TRACED, Stage.ATTRIBUTED):
            self._recording.end(aside=self._whole is not None)
        self._say(
            "window",
            name=ending.stage.value,
            steps=len(ending.ends_ns),
            seconds=(ending.closed_ns - ending.began_ns) / 1e9,
            by_time=windows.by_time,
        )
        windows.begin(following, _clock())
        attributed = ending.stage is Stage.ATTRIBUTED and (windows.by_time or ending.ends_ns)
        if self._whole is not None and attributed:
            self._whole = None
            self._recording.take_place()
        self._write_windows()
        if following is Stage.DONE:
            self._write_compiled()
        # Last, since the line log would give what follows to the line that the program is on.
        if following is Stage.NOTED:
            self._recording.begin_inputs()
        elif following is Stage.LOGGED:
            self._recording.begin_lines()
        elif following is Stage.TRACED:
            if self._size is not None:
                self._size.begin()
            self._recording.begin()
        elif following is Stage.ATTRIBUTED:
            self._recording.begin_log()
        elif following is Stage.KEPT:
            self._heap_told = keep_memory()
        elif following is Stage.DONE and not windows.by_time:
            self._steps.close()
            self._watcher.close()
        windows.now.began_ns = _clock()
        windows.now.heap_told = self._heap_told
        _note_core(windows.now)
        if windows.by_time:
            self._note_progress(windows.now)

    def _look_at_heap(self, windows: Windows, timed: Window) -> None:
        """Where a step takes no memory anew, tracing must not bring it; what it costs is seen in the end.

        A heap that was told to keep memory keeps it: not where another untraced window is to follow, nor in
        the interpreter of a notebook, where a profiler has run before. An optimizer that takes its first step
        behind the last round has its untraced window all the same, and the limits say so.
        """
        last = self._stretches is None or (
            self._stretches.in_last_round and compilations() == self._compiled and self._rank_clock is None
        )
        if not last or self._from_start or uses_device() or not can_keep_memory():
            return
        anew = takes_memory_anew(asdict(timed))
        if not anew:
            self._heap_told = keep_memory()
        windows.with_kept = anew
        if self._stretches is not None:
            self._stretches.with_kept = anew

    def _write_compiled(self) -> None:
        graphs = self._compiled_code.graphs
        if graphs:
            sources = source_bytes(self._compiled_code.files)
            write_json(os.path.join(self._folder, "compiled.json"), {"graphs": graphs, "sources": sources})

    def _write_windows(self) -> None:
        windows = self._whole or self._windows
        told = [*windows.past, windows.now] if windows is not None else []
        if windows is not None and windows is self._beginning and self._windows is not None:
            # True times are there all the same.
            timed = [one for one in self._windows.past if one.stage is Stage.TIMED and one.ends_ns]
            told = [*timed, *told] if not windows.by_time else told
        write_json(
            os.path.join(self._folder, "windows.json"),
            {
                "by": "time" if windows is not None and windows.by_time else "steps",
                "windows": [asdict(one) | {"stage": one.stage.value} for one in told],
                "trouble": self._trouble,
                "cuts": self._cuts,
                "peak_bytes": peak_bytes() if windows is not None else None,
            },
        )


def _note_core(window: Window) -> None:
    if window.stage not in (Stage.WARM, Stage.DONE):
        window.faults.append(page_faults())
    if window.stage in (Stage.TIMED, Stage.LOGGED, Stage.TRACED) and (times := core_times_ns()) is not None:
        window.core_ns.append((_clock(), *times))
