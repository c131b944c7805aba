"""Who works on a comparison: supervisor and templates, and which CPUs belong to whom."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

from trackside.workload.fleet import Fleet, Template

__all__ = ["Crew", "default_threads", "share_cpus"]

_PRELOAD = ("trackside.workload.worker", "trackside.comparison.reference")
_TEMPLATE_SECONDS = 120.0
# Optimizers and compilers bring Dynamo, which took a process 1.6 s on two cores and 3.8 s beside an H200, and
# a dozen workers nearly their whole budget. Imported before the fork, it is there for all.
_DYNAMO, _BRINGS_DYNAMO = "torch._dynamo", re.compile(rb"optim|compile|dynamo")
# Left for the rest of the machine when a worker is watched for memory.
_RESERVE_BYTES = 1 << 30


class Crew:
    """The supervisor and the worker templates; several trials in a row may share one."""

    def __init__(self, threads: int, unprotected: Sequence[str] = (), files: Sequence[Path] = ()) -> None:
        memory = int(psutil.virtual_memory().available - _RESERVE_BYTES)
        self.fleet = Fleet(Path(tempfile.mkdtemp(prefix="trackside-")), threads, memory, unprotected)
        self.templates: list[Template] = []
        self._preload = (*_PRELOAD, *([_DYNAMO] if any(map(_brings_dynamo, files)) else []))

    def start(self, count: int) -> None:
        """Have at least `count` templates; only the first is waited for."""
        while len(self.templates) < count:
            self.templates.append(self.fleet.start_template(len(self.templates), self._preload))
        self.templates[0].wait(_TEMPLATE_SECONDS)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exc: object) -> None:
        self.fleet.close()


def _brings_dynamo(path: Path) -> bool:
    """Whether a file, or one of its folder, seems to need Dynamo; where one does unseen, it takes longer."""
    files = [path] if path.is_file() else [file for file in path.glob("*.py") if file.is_file()]
    return any(_BRINGS_DYNAMO.search(file.read_bytes()) for file in files)


def default_threads(kind: str) -> int:
    """Threads of each arm: all cores but the judge's on a CPU, a few for the host side of GPU work."""
    count = len(os.sched_getaffinity(0))
    return max(1, count - 1) if kind == "cpu" else max(1, min(8, count // 2))


def share_cpus(allowed: list[int], kind: str, threads: int) -> tuple[list[int], list[int]]:
    """Cores for the judge with the reference, and for the arms; no core for both where there are enough."""
    if kind == "cpu":
        return allowed[:1], allowed[1 : 1 + threads] or allowed
    return (allowed[:2], allowed[2:]) if len(allowed) >= 4 else (allowed, allowed)
