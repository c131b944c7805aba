"""Times small pieces of code on this machine, for predicting what a replacement would gain.

Child processes do it, with torch's threads as the program had them, or on the program's device; what they are
asked is written by rules, from shapes and types that the trace shows; no code of the program's runs here.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from trackside.diagnose.wording import percent

__all__ = ["Memory", "Ratio", "Reading", "Timing", "Workbench"]

Reading = Literal["usual", "least", "most"]
Memory = Literal["kept", "given back"]

_ANSWER_SECONDS = 30.0
# glibc's malloc: with a fixed threshold it gives large blocks back at once, and keeps smaller ones.
_MALLOC: dict[Memory, dict[str, str]] = {
    "kept": {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)},
    "given back": {"MALLOC_MMAP_THRESHOLD_": str(128 << 10)},
}
# A program whose call takes less than so many times what it takes where memory is kept has its memory kept.
_CLOSE = 1.5
# One replacement's ratio, timed in seven processes, lay between 0.84 and 0.92.
_MOVES = 0.06
# In the child: rounds of all arms in turn, so that a machine that changes its pace does so for all of them.
_CHILD = r"""
import json, sys, time
import torch

usual_threads = torch.get_num_threads()

def calls_in(seconds, call):
    call(); call()
    began = time.perf_counter()
    call()
    return max(1, int(seconds / max(1e-7, time.perf_counter() - began)))

def timed(call, most, until, clock):
    began = clock()
    for done in range(1, most + 1):
        call()
        # Threads that others keep from running may take a thousand times what one call took before.
        if done % 4 == 0 and time.perf_counter() > until:
            break
    return (clock() - began) / done

def on_host(calls, seconds):
    # One thread's own time: on a busy machine the clock on the wall counts the others' too.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    share = seconds / 40
    counts = [calls_in(share, call) for call in calls]
    rounds = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(rounds[0]) < 5:
        for call, count, kept in zip(calls, counts, rounds):
            kept.append(timed(call, count, time.perf_counter() + 8 * share, clock))
    # The best of each: others on the machine can only make it slower.
    return [[min(kept), None] for kept in rounds]

def on_device(calls, seconds):
    for call in calls:
        call(); call()
    torch.cuda.synchronize()
    issued = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(issued[0]) < 5:
        for call, kept in zip(calls, issued):
            # Few enough that the device's queue never fills: then the host would wait for it.
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(10):
                call()
            kept.append((time.perf_counter() - began) / 10)
    busy = [[] for _ in calls]
    for _ in range(3):
        for call, kept in zip(calls, busy):
            torch.cuda.synchronize()
            with torch.autograd.profiler.profile(use_device="cuda", use_kineto=True) as seen:
                for _ in range(10):
                    call()
                torch.cuda.synchronize()
            rows = seen.kineto_results.events()
            cuda = torch.autograd.DeviceType.CUDA
            # A range that is open on the host is drawn on the device too, and is no work of its own.
            ranges = {row.name() for row in rows if row.device_type() != cuda}
            work = [row for row in rows if row.device_type() == cuda and row.name() not in ranges]
            kept.append(sum(row.duration_ns() for row in work) / 10 / 1e9)
    return [[min(host), sorted(device)[1]] for host, device in zip(issued, busy)]

print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    names = calls = None
    try:
        device = asked["device"]
        if device and torch.cuda.get_device_name() != device:
            raise RuntimeError(f"the device here is {torch.cuda.get_device_name()}")
        torch.set_num_threads(asked["threads"] or usual_threads)
        torch.manual_seed(0)
        # As the question before may not have left it.
        torch.set_grad_enabled(True)
        names = {"torch": torch, "F": torch.nn.functional}
        # Not the default device: asking for it would cost every call.
        with torch.device("cuda" if device else "cpu"):
            exec(asked["setup"], names)
        calls = []
        for arm in asked["arms"]:
            exec("def arm():\n" + "\n".join("    " + l for l in arm.splitlines()), names)
            calls.append(names["arm"])
        answer = {"times": (on_device if device else on_host)(calls, asked["seconds"])}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    names = calls = None
    print(json.dumps(answer), flush=True)
"""


@dataclass(frozen=True)
class Timing:
    """Seconds of one call."""

    host: float
    """Of the thread that calls; where a device computes, until it may go on."""
    device: float | None = None
    """All that the call runs there; None where the host computes."""


@dataclass(frozen=True)
class Ratio:
    """What a new way takes of an old way's time."""

    host: float
    device: float | None = None
    between: tuple[float, float] | None = None
    """The least and the most that the host's may be, where that hangs on what new memory costs."""

    @property
    def surely(self) -> float:
        """Of the time of whatever computes, at the most."""
        return self.computing if self.between is None else self.between[1]

    @property
    def best(self) -> float:
        """The smaller of the two."""
        return self.host if self.device is None else min(self.host, self.device)

    @property
    def computing(self) -> float:
        """Of the time of whatever computes."""
        return self.host if self.device is None else self.device

    def __str__(self) -> str:
        if self.between is not None:
            least, most = map(percent, self.between)
            return f"between {least} and {most} of the time, by whether it has to pay for new memory"
        if self.device is None:
            return f"{percent(self.host)} of the time"
        return f"{percent(self.device)} of the time on the device and {percent(self.host)} on the host"


@dataclass
class Workbench:
    """Times snippets; its processes start with the first that they are asked and end with the `with` block.

    What fills new memory may take five times as long in one process as in the next: it depends on what was
    allocated before whether freed blocks are kept, or given back and paid for again with page faults. So one
    process keeps them all and another keeps none, and a program is taken to be where its own time says.
    """

    threads: int | None = None
    seconds: float = 0.4
    """For each question."""
    device: str | None = None
    """The name of the GPU that it is about: of another one nothing is said. None for the processor."""

    def __post_init__(self) -> None:
        self.asked = 0
        """Questions so far, those that were answered before among them."""
        self._reading: Reading = "usual"
        self._children: dict[Memory, subprocess.Popen[str]] = {}
        self._known: dict[tuple[str, ...], tuple[Timing, ...] | None] = {}

    def __enter__(self) -> Workbench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for memory in list(self._children):
            self._end(memory)

    @contextlib.contextmanager
    def read(self, reading: Reading) -> Iterator[None]:
        """Give ratios by which the least or the most is saved that timings leave open, and not the usual."""
        self._reading = reading
        try:
            yield
        finally:
            self._reading = "usual"

    def times(
        self,
        setup: str,
        *arms: str,
        threads: int | None = None,
        on_host: bool = False,
        memory: Memory = "kept",
    ) -> tuple[Timing, ...] | None:
        """What a call of each arm takes; None where it cannot be timed here.

        Args:
            setup: run once; knows `torch` and `F`.
            arms: statements, called over and over in turn.
            on_host: on the processor, whatever the program computes on.
            memory: whether blocks that are freed are kept for the next call.
        """
        self.asked += 1
        device = None if on_host else self.device
        key = (setup, *arms, str(threads), str(device), memory)
        if key not in self._known:
            question = {
                "setup": setup,
                "arms": arms,
                "threads": threads or self.threads,
                "seconds": self.seconds,
                "device": device,
            }
            self._known[key] = self._ask(memory, question)
        return self._known[key]

    def ratio(
        self, setup: str, old: str, new: str, on_host: bool = False, old_ns: float | None = None
    ) -> Ratio | None:
        """What the new way takes of the old way's time, as it is read now.

        Args:
            old_ns: what one call of the old way takes the program.
        """
        found = self.times(setup, old, new, on_host=on_host)
        if found is None or not found[0].host > 0:
            return None
        before, after = found
        moves = {"least": 1 + _MOVES, "usual": 1.0, "most": 1 - _MOVES}[self._reading]
        if before.device is not None and after.device is not None:
            if not before.device > 0:
                return None
            return Ratio(moves * after.host / before.host, moves * after.device / before.device)
        slower = _given_back(found, None if old_ns is None else old_ns / 1e9)
        if slower is not None:
            found = self.times(setup, old, new, on_host=on_host, memory="given back")
            if found is not None and found[0].host > before.host:
                # The new way may have its memory as the old one has, or be spared that.
                part = min(1.0, slower / (found[0].host - before.host))
                took = before.host + part * (found[0].host - before.host)
                alike = after.host + part * max(0.0, found[1].host - after.host)
                least, most = alike / took, after.host / took
                middle = (least + most) / 2
                now = {"least": least, "usual": middle, "most": most}[self._reading]
                return Ratio(moves * now, between=(most, least))
        return Ratio(moves * after.host / before.host)

    def _ask(self, memory: Memory, question: dict[str, Any]) -> tuple[Timing, ...] | None:
        try:
            child = self._started(memory)
            assert child.stdin is not None
            child.stdin.write(json.dumps(question) + "\n")
            child.stdin.flush()
            answer = json.loads(_line(child))
        except (OSError, ValueError):
            self._end(memory)
            return None
        return tuple(Timing(*one) for one in answer["times"]) if "times" in answer else None

    def _started(self, memory: Memory) -> subprocess.Popen[str]:
        if memory not in self._children:
            child = self._children[memory] = subprocess.Popen(
                [sys.executable, "-c", _CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                bufsize=1,
                env={**os.environ, **_MALLOC[memory]},
            )
            _line(child)
        return self._children[memory]

    def _end(self, memory: Memory) -> None:
        child = self._children.pop(memory, None)
        if child is not None:
            child.kill()
            child.communicate()


def _given_back(kept: tuple[Timing, ...], took: float | None) -> float | None:
    """By how many seconds a call took the program longer than it takes where memory is kept, if so much."""
    if took is None or took <= _CLOSE * kept[0].host:
        return None
    return took - kept[0].host


def _line(child: subprocess.Popen[str]) -> str:
    """The child's next line.

    Raises:
        OSError: it has ended, or takes too long.
    """
    assert child.stdout is not None
    with contextlib.suppress(ValueError):
        ready, _, _ = select.select([child.stdout], [], [], _ANSWER_SECONDS)
        if ready and (line := child.stdout.readline()):
            return line
    raise OSError("the workbench does not answer")
