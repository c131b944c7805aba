"""A child process that times what a rule would put in a program's place, at the shapes it was traced with.

What is timed is written by rules, from shapes and types alone; no code of the program's runs here.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from dataclasses import dataclass
from types import TracebackType

__all__ = ["Workbench"]

_ANSWER_SECONDS = 20.0
# In the child: rounds of all arms in turn, so that a machine that changes its pace does so for all of them.
_CHILD = r"""
import json, sys, time
import torch
def timed(call, least):
    call(); call()
    times, began = 1, time.perf_counter()
    call()
    times = max(1, int(least / max(1e-7, time.perf_counter() - began)))
    return times
print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    try:
        if asked["threads"]:
            torch.set_num_threads(asked["threads"])
        torch.manual_seed(0)
        names = {"torch": torch, "F": torch.nn.functional}
        exec(asked["setup"], names)
        calls = []
        for arm in asked["arms"]:
            exec("def arm():\n" + "\n".join("    " + l for l in arm.splitlines()), names)
            calls.append(names["arm"])
        # One thread's own time: on a busy machine the clock on the wall counts the others' too.
        clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        counts = [timed(call, asked["seconds"] / 40) for call in calls]
        rounds = [[] for _ in calls]
        end = time.perf_counter() + asked["seconds"]
        while time.perf_counter() < end or len(rounds[0]) < 5:
            for call, count, kept in zip(calls, counts, rounds):
                began = clock()
                for _ in range(count):
                    call()
                kept.append((clock() - began) / count)
        # The best of each: others on the machine can only make it slower.
        answer = {"seconds": [min(kept) for kept in rounds]}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    names = calls = None
    print(json.dumps(answer), flush=True)
"""


@dataclass
class Workbench:
    """Times snippets; the child starts with the first and ends with the `with` block."""

    threads: int | None = None
    seconds: float = 0.4
    """For each question."""

    def __post_init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._known: dict[tuple[str, ...], tuple[float, ...] | None] = {}

    def __enter__(self) -> Workbench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def times(self, setup: str, *arms: str, threads: int | None = None) -> tuple[float, ...] | None:
        """Seconds of a call of each arm; None where it cannot be timed here.

        Args:
            setup: run once; knows `torch` and `F`.
            arms: statements, called over and over in turn.
        """
        key = (setup, *arms, str(threads))
        if key not in self._known:
            self._known[key] = self._ask(setup, arms, threads or self.threads)
        return self._known[key]

    def ratio(self, setup: str, old: str, new: str) -> float | None:
        """What the new way takes of the old way's time."""
        found = self.times(setup, old, new)
        return found[1] / found[0] if found and found[0] > 0 else None

    def _ask(self, setup: str, arms: tuple[str, ...], threads: int | None) -> tuple[float, ...] | None:
        question = {"setup": setup, "arms": arms, "threads": threads, "seconds": self.seconds}
        try:
            child = self._started()
            assert child.stdin is not None
            child.stdin.write(json.dumps(question) + "\n")
            child.stdin.flush()
            answer = json.loads(self._line(child))
        except (OSError, ValueError):
            self.__exit__(None, None, None)
            return None
        return tuple(answer["seconds"]) if "seconds" in answer else None

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
