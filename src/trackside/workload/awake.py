"""Keeps one CPU busy at the lowest priority while arms take turns on it.

A hypervisor takes a CPU away when it falls idle and gives it back late and cold. On a 2-core guest, calls
after 5 ms of idling spread 2.5 times as wide as calls after 5 ms of this (docs/measurement.md).
"""

from __future__ import annotations

import os
import sys

from trackside.workload import sandbox

__all__ = ["main"]


def main(argv: list[str]) -> None:
    """Spin on CPU `argv[0]` until the parent, process `argv[1]`, ends; whatever else wants it goes first."""
    sandbox.die_with_parent()
    # At the lowest priority this line may be reached late: a parent that has gone by then sends no signal.
    if os.getppid() != int(argv[1]):
        return
    os.sched_setaffinity(0, {int(argv[0])})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while True:
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
