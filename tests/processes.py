"""Processes beside the test: how they are watched, and one that holds a device."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["alive", "gone", "holding_process", "until"]

_HOLDER = """
import os, sys
from pathlib import Path
from trackside.store.lock import DeviceLock
key, folder, cpus, shared = sys.argv[1:]
if cpus:
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
options = {"shared": True} if shared else {}
with DeviceLock(key, False, verb="compare", folder=Path(folder) if folder else None, **options):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def holding_process(
    key: str, folder: Path | None = None, cpus: Iterable[int] = (), *, shared: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds a device until it is killed or reads a line."""
    chosen = ",".join(map(str, cpus))
    command = [sys.executable, "-c", _HOLDER, key, str(folder or ""), chosen, "shared" if shared else ""]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process
        finally:
            process.kill()


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
