"""Watching processes that are not our children."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

__all__ = ["alive", "gone", "until"]


def until(condition: Callable[[], Any], what: str, seconds: float = 60) -> None:
    """Wait for a condition to hold."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        # A process whose first thread alone has ended is called a zombie too.
        return fields[0] not in b"ZX" or int(fields[17]) > 1
    except OSError:
        return False


def gone(pids: Iterable[int]) -> bool:
    return not any(alive(pid) for pid in pids)
