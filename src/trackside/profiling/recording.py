"""The profiler and the line log at work in the program's process, and the files that they leave.

One session of the profiler serves both traced windows. A range that is open when one session ends, and closed
while another runs, has torch write into memory that the first has freed, which may end the program: after a
session in which one was left open there is no other.
"""

from __future__ import annotations

import _thread
import gc
import json
import mmap
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from trackside.profiling.inputs_log import InputsLog
from trackside.profiling.line_events import LineEvents
from trackside.profiling.line_log import LineLog, LineLogUnavailable
from trackside.profiling.markers import ClockMarkers
from trackside.profiling.memory_log import DeviceHistory, held_tensors, peak_resident
from trackside.profiling.module_log import ModuleLog
from trackside.profiling.source_bytes import source_bytes
from trackside.profiling.torch_messages import TorchMessages

__all__ = [
    "Recording",
    "compilations",
    "core_times_ns",
    "device_may_come",
    "page_faults",
    "peak_bytes",
    "uses_device",
    "wait_for_device",
    "write_json",
]

# Kineto tells the terminal when it starts and stops; above every level of its own it does not. The others are
# what torch.profiler sets for programs with CUDA graphs, which crashed when CUPTI was taken down and set up.
_KINETO = {"KINETO_LOG_LEVEL": "99", "TEARDOWN_CUPTI": "0", "DISABLE_CUPTI_LAZY_REINIT": "1"}
_NVIDIA = "/dev/nvidiactl"
_FILES = ("trace.json", "lines.json", "lines_alone.json", "modules.json", "memory.json", "sources.json")
# Ranges of torch's own, which are closed long before the next session begins, and what is no range. A
# collective's is closed by a thread of gloo's, a moment after the program was told that it is over.
_SHORT = (b"Optimizer.", b"enumerate(DataLoader)#", b"gloo:", b"[memory]")
_OPEN, _NAME = b'"finished": false', b'"name": "'
# What a recording is called until it takes the place of the one before.
_NEXT = ".next"
# What every profiler of torch's begins with.
_STARTERS = ("_prepare_profiler", "_enable_profiler")
_NO_SILENCE = (
    "tensors of the host were not followed: torch's allocator would write warnings about it into the "
    "program's output"
)
# How long a profiler of another thread waits for ours to end, which happens where a step does.
_PATIENCE_S, _MOMENT_S = 2.0, 0.001
_GAVE_WAY = "the program started a profiler of its own, and there can be one only"


class Recording:
    """May be used again once it has ended or was dropped.

    Args:
        folder: where its files go.
        is_users: whether a file is the program's own.
        note: told what could not be had.
        optimizers: those that the program uses, as far as they are known.
    """

    def __init__(
        self,
        folder: str,
        is_users: Callable[[str], bool],
        note: Callable[[str], None],
        optimizers: Callable[[], Iterable[Any]] = lambda: (),
    ) -> None:
        self._folder, self._is_users, self._note = folder, is_users, note
        self._optimizers = optimizers
        self._profiler: Any = None
        self._markers: ClockMarkers | None = None
        self._log: LineLog | None = None
        self._log_alone: LineLog | None = None
        self._lines_alone: LineEvents | None = None
        """Of steps in which nothing was traced; `end` writes them."""
        self._modules: ModuleLog | None = None
        self._events: LineEvents | None = None
        self._module_calls: dict[str, Any] | None = None
        self._messages = TorchMessages()
        self._inputs = InputsLog(folder)
        self._inputs_known = False
        """Whether what operators are called with has been noted, and need not be traced."""
        self._history: DeviceHistory | None = None
        self._memory: dict[str, Any] | None = None
        self._memory_missing: list[str] = []
        self._without_device = False
        self._left_open: str | None = None
        """A range that an earlier session has seen begin and not end."""
        self._starters: dict[str, Any] = {}
        self._runs = self._awaited = False
        """Whether the profiler runs, and whether another thread of the program's waits for its end."""

    def begin(self) -> None:
        """Start the profiler.

        Raises:
            RuntimeError: the program runs one of its own, or had a range open when our last one ended.
        """
        torch: Any = sys.modules["torch"]
        if self._left_open is not None:
            raise RuntimeError(
                f"the range {self._left_open!r} was open when a recording ended, and torch "
                "would crash at its end in another"
            )
        # The first answers for this thread, the second for all.
        enabled = torch._C._autograd._profiler_enabled()
        elsewhere = getattr(torch.autograd.profiler, "_is_profiler_enabled", False)
        if enabled or elsewhere or _one_is_prepared(torch):
            raise RuntimeError("the program runs a profiler of its own, and there can be one only")
        with_device = torch.cuda.is_initialized()
        if with_device and self._without_device:
            self._note("the profiler was first started before the program used its GPU, and may not see it")
        self._without_device |= not with_device
        # Not torch.profiler's, which imports the compiler for a look at its settings, and warns of itself.
        # A GPU's memory has a history of its own, with lines. On a CPU these events make traced steps of many
        # small operators up to six per cent longer, and the allocator would warn in the program's output.
        self._memory_missing = []
        memory = not with_device and self._messages.errors_only()
        if not memory and not with_device:
            self._memory_missing.append(_NO_SILENCE)
        profiler = torch.autograd.profiler.profile(
            use_device="cuda" if with_device else None,
            use_kineto=True,
            record_shapes=with_device or not self._inputs_known,
            profile_memory=memory,
        )
        with _kineto_settings():
            profiler.__enter__()
        self._profiler, self._runs, self._awaited = profiler, True, False
        self._give_way_to_others()
        self._markers = ClockMarkers()
        self._markers.begin()

    def begin_inputs(self) -> None:
        """From now on note what operators are called with, if that helps: a GPU's tensors are elsewhere."""
        if not uses_device():
            self._inputs.begin()

    def end_inputs(self, steps: int | None) -> None:
        """The program has taken so many steps meanwhile, if it has any; the profiler may rely on it now."""
        self._inputs_known = self._inputs.end(steps) or self._inputs_known

    def forget_inputs(self) -> None:
        """What was noted is no longer so."""
        self._inputs.drop()
        self._inputs_known = False

    def inputs_overflow(self) -> bool:
        """Whether there are far too many operators; `drop_inputs` then."""
        return self._inputs.is_too_large()

    def drop_inputs(self) -> None:
        """Stop noting, if that is under way."""
        self._inputs.drop()

    def begin_lines(self) -> None:
        """From now on lines alone, without the profiler."""
        self._lines_alone = None
        log = LineLog(self._is_users)
        # Where it cannot be had, it cannot be had beside the profiler either, and that is said then.
        with suppress(LineLogUnavailable):
            log.start()
            self._log_alone = log

    def end_lines(self) -> None:
        if self._log_alone is not None:
            log, self._log_alone = self._log_alone, None
            self._lines_alone = log.stop()

    def begin_log(self) -> None:
        """From now on lines and modules too.

        Raises:
            RuntimeError: the program has started a profiler of its own.
        """
        if self._markers is None:
            raise RuntimeError(_GAVE_WAY)
        self._markers.begin()
        self._history = DeviceHistory(self._is_users, self._memory_missing.append)
        self._history.start()
        self._modules = ModuleLog()
        self._modules.start()
        log = LineLog(self._is_users, tick=self._markers.tick)
        try:
            log.start()
        except LineLogUnavailable as error:
            self._note(f"lines: {error}")
            return
        self._log = log

    def end_log(self) -> None:
        """Lines and modules no longer; `end` writes what there was."""
        # The line log last, and here first: what the others take would be the time of a line.
        if self._log is not None:
            log, self._log = self._log, None
            self._events = log.stop()
        if self._history is not None:
            history, self._history = self._history, None
            self._memory = self._seen_memory(history)
        if self._modules is not None:
            modules, self._modules = self._modules, None
            self._module_calls = modules.stop()

    def _seen_memory(self, history: DeviceHistory) -> dict[str, Any]:
        modules = self._modules.roots() if self._modules is not None else ()
        found: dict[str, Any] = {"devices": {}, "held": {}, "peak_resident": peak_resident()}
        try:
            found["devices"] = history.stop()
            found["held"] = held_tensors(self._optimizers(), modules)
        except Exception as error:
            self._memory_missing.append(f"{type(error).__name__}: {error}")
        return found | {"missing": self._memory_missing}

    def tick(self) -> None:
        """Now and then, from the thread that is profiled."""
        if self.is_awaited:
            self.drop()
        if self._markers is not None:
            self._markers.tick()

    @property
    def is_awaited(self) -> bool:
        """Whether another thread waits for a `tick`."""
        return self._awaited and self._runs

    def end(self, aside: bool) -> None:
        """Stop all and write the files.

        Args:
            aside: not in the place of an earlier recording's, until `take_place`.

        Raises:
            RuntimeError: the program has started a profiler of its own.
        """
        if self._profiler is None:
            raise RuntimeError(_GAVE_WAY)
        self._take_back()
        self.end_log()
        events, modules, memory = self._events, self._module_calls, self._memory
        self._events = self._module_calls = self._memory = None
        markers = self._markers.markers if self._markers is not None else []
        if self._markers is not None:
            self._markers.end()
        wait_for_device()
        profiler, self._profiler, self._markers = self._profiler, None, None
        with _kineto_settings():
            profiler.__exit__(None, None, None)
        self._runs = False
        self._messages.as_before()
        self._remove(aside)
        path = self._path("trace.json", aside)
        # By this ending the profiler decides whether to compress.
        self._export(profiler, f"{path}.part.json")
        os.replace(f"{path}.part.json", path)
        lines = events.to_document() if events is not None else {}
        write_json(
            self._path("lines.json", aside), lines | {"markers": [asdict(marker) for marker in markers]}
        )
        if self._lines_alone is not None:
            alone, self._lines_alone = self._lines_alone, None
            write_json(self._path("lines_alone.json", aside), alone.to_document())
        if modules is not None:
            write_json(self._path("modules.json", aside), modules)
        if memory is not None:
            write_json(self._path("memory.json", aside), memory)
        if events is not None:
            files = dict.fromkeys(place.file for place in events.places)
            write_json(self._path("sources.json", aside), source_bytes(files))

    def drop(self) -> None:
        """Take what still runs out of the program, and keep nothing of it."""
        self._take_back()
        self._inputs.drop()
        profiler, self._profiler, self._markers = self._profiler, None, None
        with suppress(Exception):
            self.end_lines()
        with suppress(Exception):
            self.end_log()
        self._log_alone = self._lines_alone = None
        self._log = self._modules = self._events = self._module_calls = self._memory = None
        if profiler is not None:
            # It may have stopped already, or never have begun.
            with suppress(Exception), _kineto_settings():
                profiler.__exit__(None, None, None)
        self._runs = False
        self._messages.as_before()
        if profiler is not None:
            path = self._path("dropped.json", False)
            with suppress(Exception):
                self._export(profiler, path)
            with suppress(OSError):
                os.remove(path)

    def _export(self, profiler: Any, path: str) -> None:
        profiler.export_chrome_trace(path)
        if not os.path.exists(path):
            # Torch says nothing, and leaves what it could write.
            with suppress(OSError):
                os.remove(f"{path}.tmp")
            raise OSError(f"torch could not write its trace in {self._folder}: is there room for it?")
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            at = text.find(_OPEN)
            while at >= 0:
                # An event's name stands before its arguments.
                name = text.rfind(_NAME, 0, at) + len(_NAME)
                if not text[name : name + 80].startswith(_SHORT):
                    # Some versions end the line there, others write on.
                    found = text[name : name + 200].partition(b"\n")[0].partition(b'", "pid"')[0]
                    self._left_open = found.rstrip(b'", ').decode("utf-8", "replace")
                at = text.find(_OPEN, at + 1)

    def _give_way_to_others(self) -> None:
        """There can be one profiler only, and the program's own comes first: when it starts, ours ends."""
        module: Any = sys.modules["torch.autograd.profiler"]
        thread = _thread.get_ident()

        def before(start: Any) -> Any:
            def starting(*given: Any, **named: Any) -> Any:
                if _thread.get_ident() == thread:
                    self.drop()
                else:
                    self._end_in_its_thread()
                return start(*given, **named)

            return starting

        for name in _STARTERS:
            if (start := getattr(module, name, None)) is not None:
                self._starters[name] = start
                setattr(module, name, before(start))

    def _end_in_its_thread(self) -> None:
        """Two at once end the program, and only the thread that began ours can end it: wait until it has."""
        self._awaited = True
        until = time.monotonic() + _PATIENCE_S
        while self._runs and time.monotonic() < until:
            time.sleep(_MOMENT_S)

    def _take_back(self) -> None:
        module: Any = sys.modules.get("torch.autograd.profiler")
        for name, start in self._starters.items():
            setattr(module, name, start)
        self._starters = {}

    def take_place(self) -> None:
        """What was written aside is the recording now."""
        self._remove(aside=False)
        for name in _FILES:
            with suppress(FileNotFoundError):
                os.replace(self._path(name, True), self._path(name, False))

    def _remove(self, aside: bool) -> None:
        for name in _FILES:
            with suppress(FileNotFoundError):
                os.remove(self._path(name, aside))

    def _path(self, name: str, aside: bool) -> str:
        return os.path.join(self._folder, name + (_NEXT if aside else ""))


def _one_is_prepared(torch: Any) -> bool:
    """Whether a profiler of the program's with a schedule is in its warm-up.

    It is not yet enabled, but torch has been told of it: a session of ours in between would end the program
    with a segmentation fault when its own begins. Nobody but the profiler itself knows, and so it is looked
    for; among hundreds of thousands of objects that takes tens of milliseconds, and only where there is one.
    """
    module: Any = sys.modules.get("torch.profiler.profiler")
    kind, step = getattr(module, "profile", None), getattr(module, "PROFILER_STEP_NAME", None)
    if kind is None:
        return False
    # Torch counts the steps of a profiler from its start to its stop.
    tracker = getattr(torch.autograd.profiler, "KinetoStepTracker", None)
    if step not in getattr(tracker, "_step_dict", (step,)):
        return False
    warm_up = module.ProfilerAction.WARMUP
    # By its type alone: other objects may run code of the program's when they are asked what they are.
    return any(one.current_action == warm_up for one in gc.get_objects() if kind in type(one).__mro__)


def wait_for_device() -> None:
    """What the program has launched is over when this returns."""
    cuda = getattr(sys.modules["torch"], "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()


def uses_device() -> bool:
    torch: Any = sys.modules["torch"]
    return bool(torch.cuda.is_initialized())


def device_may_come() -> bool:
    """Whether there is a GPU that the program may use and has not yet.

    A profiler that is first started without the device never sees it.
    """
    torch: Any = sys.modules["torch"]
    return bool(torch.version.cuda and os.path.exists(_NVIDIA) and not torch.cuda.is_initialized())


def peak_bytes() -> int | None:
    """The most memory that the program has had: of its GPU, or where it uses none, of its process."""
    torch: Any = sys.modules["torch"]
    if torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    with suppress(OSError, ValueError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def core_times_ns() -> tuple[int, int] | None:
    """How long this thread ran, and how long it stood ready while others had its core; None where Linux
    does not say."""
    with suppress(OSError, ValueError, IndexError), open("/proc/thread-self/schedstat", "rb") as file:
        ran, ready = file.read().split()[:2]
        return int(ran), int(ready)
    return None


def page_faults() -> int:
    """Of the process until now, those for which nothing was read."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def compilations() -> int:
    """A number that changes whenever something has been compiled."""
    utils = sys.modules.get("torch._dynamo.utils")
    phases: dict[str, list[float]] = getattr(utils, "compilation_time_metrics", {})
    # Another thread may be at it.
    return sum(len(times) for times in list(phases.values()))


def write_json(path: str, document: dict[str, Any]) -> None:
    """Whole or not at all: the program may be killed meanwhile."""
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.replace(f"{path}.part", path)


@contextmanager
def _kineto_settings() -> Iterator[None]:
    """The program's own, if it has some, stand."""
    mine = {name: value for name, value in _KINETO.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)
