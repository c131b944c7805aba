"""Times small pieces of code on this machine, for predicting what a replacement would gain.

A child process does it, with torch's threads as the program had them, or on the program's device; what it is
asked is written by rules, from shapes and types that the trace shows; no code of the program's runs here.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from dataclasses import dataclass
from types import TracebackType

from trackside.diagnose.wording import percent

__all__ = ["Ratio", "Timing", "Workbench"]

_ANSWER_SECONDS = 30.0
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

    @property
    def best(self) -> float:
        """The smaller of the two."""
        return self.host if self.device is None else min(self.host, self.device)

    @property
    def computing(self) -> float:
        """Of the time of whatever computes."""
        return self.host if self.device is None else self.device

    def __str__(self) -> str:
        if self.device is None:
            return f"{percent(self.host)} of the time"
        return f"{percent(self.device)} of the time on the device and {percent(self.host)} on the host"


@dataclass
class Workbench:
    """Times snippets; the child starts with the first and ends with the `with` block."""

    threads: int | None = None
    seconds: float = 0.4
    """For each question."""
    device: str | None = None
    """The name of the GPU that it is about: of another one nothing is said. None for the processor."""

    def __post_init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._known: dict[tuple[str, ...], tuple[Timing, ...] | None] = {}

    def __enter__(self) -> Workbench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def times(
        self, setup: str, *arms: str, threads: int | None = None, on_host: bool = False
    ) -> tuple[Timing, ...] | None:
        """What a call of each arm takes; None where it cannot be timed here.

        Args:
            setup: run once; knows `torch` and `F`.
            arms: statements, called over and over in turn.
            on_host: on the processor, whatever the program computes on.
        """
        device = None if on_host else self.device
        key = (setup, *arms, str(threads), str(device))
        if key not in self._known:
            self._known[key] = self._ask(setup, arms, threads or self.threads, device)
        return self._known[key]

    def ratio(self, setup: str, old: str, new: str, on_host: bool = False) -> Ratio | None:
        """What the new way takes of the old way's time."""
        found = self.times(setup, old, new, on_host=on_host)
        if found is None or not found[0].host > 0:
            return None
        before, after = found
        device = None
        if before.device is not None and after.device is not None:
            if not before.device > 0:
                return None
            device = after.device / before.device
        return Ratio(after.host / before.host, device)

    def _ask(
        self, setup: str, arms: tuple[str, ...], threads: int | None, device: str | None
    ) -> tuple[Timing, ...] | None:
        question = {
            "setup": setup,
            "arms": arms,
            "threads": threads,
            "seconds": self.seconds,
            "device": device,
        }
        try:
            child = self._started()
            assert child.stdin is not None
            child.stdin.write(json.dumps(question) + "\n")
            child.stdin.flush()
            answer = json.loads(self._line(child))
        except (OSError, ValueError):
            self.__exit__(None, None, None)
            return None
        return tuple(Timing(*one) for one in answer["times"]) if "times" in answer else None

    def _started(self) -> subprocess.Popen[str]:
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-c", _CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                bufsize=1,
            )
            self._line(self._child)
        return self._child

    def _line(self, child: subprocess.Popen[str]) -> str:
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
