"""A known time on a known line: waits that are timed by hand. For the log, not the user's code."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

__all__ = ["Waited", "note", "swallow", "wait", "waits"]


class Waited(NamedTuple):
    label: str
    thread: int
    start_ns: int
    end_ns: int


waits: list[Waited] = []


def wait(ms: float, label: str) -> float:
    """Keeps the line that calls busy for so long, and notes when that was.

    Most of it asleep: a machine that lends its processors for a share of the time would take them away after
    too much work, and that on other lines.
    """
    start = time.perf_counter_ns()
    end = start + int(ms * 1e6)
    time.sleep(max(0.0, ms - 0.5) / 1e3)
    now = time.perf_counter_ns()
    while now < end:
        now = time.perf_counter_ns()
    waits.append(Waited(label, threading.get_native_id(), start, now))
    return ms


def swallow(call: Callable[[], object], ms: float, label: str) -> None:
    """Catches what the call raises, and then goes on."""
    with suppress(Exception):
        call()
    wait(ms, label)


def note(label: str, start_ns: int) -> None:
    """What began then is over."""
    waits.append(Waited(label, threading.get_native_id(), start_ns, time.perf_counter_ns()))
