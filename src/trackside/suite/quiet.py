"""Whether the machine is quiet enough to time something: other work on its CPUs, and who holds the device."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from trackside.machine.facts import facts as machine_facts
from trackside.machine.facts import gpu_numbered
from trackside.records.devices import gpu_index
from trackside.records.errors import TracksideError
from trackside.store.lock import DeviceLock, gpu_key

__all__ = ["Quiet", "holder", "lock_key"]

# Of the allowed CPUs' time, by anyone: an editor and its language server take less, a build takes more.
_MOST_BUSY: Final = 0.20
_MOST_STOLEN: Final = 0.02
# A window of this length at least: a single burst is over sooner.
_WINDOW_S: Final = 1.0


class Quiet:
    """Watches how busy the CPUs are, between one look and the next."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._stat = root / "proc/stat"
        self._clock = clock
        self._last = self._read()
        self._at = clock()
        self._reason: str | None = "the machine has not been watched for long enough"

    def why_not(self, device: str) -> str | None:
        """What speaks against timing now; None where nothing does."""
        if self._clock() - self._at >= _WINDOW_S:
            now, before = self._read(), self._last
            self._last, self._at = now, self._clock()
            self._reason = _judge(before, now)
        return self._reason or holder(device)

    def _read(self) -> tuple[float, float, float] | None:
        """Ticks so far of the allowed CPUs: all, busy, stolen."""
        try:
            lines = self._stat.read_text().splitlines()
        except OSError:
            return None
        names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        total = busy = stolen = 0.0
        for line in lines:
            name, *fields = line.split()
            if name in names and len(fields) >= 8:
                ticks = [float(field) for field in fields[:8]]
                total += sum(ticks)
                busy += sum(ticks) - ticks[3] - ticks[4] - ticks[7]
                stolen += ticks[7]
        return (total, busy, stolen) if total else None


def _judge(before: tuple[float, float, float] | None, now: tuple[float, float, float] | None) -> str | None:
    if before is None or now is None or now[0] <= before[0]:
        # Not Linux's /proc/stat: a comparison itself sees disturbed quads.
        return None
    total, busy, stolen = (after - first for after, first in zip(now, before, strict=True))
    if busy / total > _MOST_BUSY:
        # No figure of this second: it would stand there when it is long another.
        return f"other work takes more than {_MOST_BUSY:.0%} of the CPUs' time"
    if stolen / total > _MOST_STOLEN:
        return f"the hypervisor takes more than {_MOST_STOLEN:.0%} of the CPUs' time"
    return None


@cache
def lock_key(device: str) -> str:
    """The key of a device's lock, as comparisons have it; kept, as it is asked for ten times a second."""
    number = gpu_index(device)
    if number is None:
        return "cpu"
    return gpu_key(gpu_numbered(machine_facts(), number))


def holder(device: str) -> str | None:
    """Who holds a device, in words; None where nobody does."""
    try:
        # Held for an instant: who waits for it asks again within a tenth of a second.
        with DeviceLock(lock_key(device), wait=False, verb="watch"):
            return None
    except TracksideError as error:
        return error.message
