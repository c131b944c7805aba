"""`trackside compare` as a process of its own, on a small workload."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.processes import until

from trackside.store.runs import RunStore
from trackside.workload.supervisor import descendants

BASELINE = """
import torch

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(64, 64, generator=g, device=device),)

def run(x):
    return torch.relu(x) + 1
"""

HONEST = """
import ctypes, json, os, signal, socket, struct, sys, threading, time
from pathlib import Path
import torch

def honest(x):
    return torch.relu(x) + 1

run = honest
"""

# The program with a device lock of its own: these tests time nothing, and must not wait for runs that do.
_MAIN = """
import pathlib, sys
from trackside.store import lock
folder = pathlib.Path(sys.argv.pop(1))
lock._lock_folder = lambda: folder
from trackside.cli.main import main
sys.exit(main())
"""


@dataclass
class Program:
    """`trackside compare` in a folder of its own, with its own temporary folder and store."""

    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("tmp", "locks"):
            (self.folder / name).mkdir()
        (self.folder / "base.py").write_text(BASELINE)
        (self.folder / "new.py").write_text(HONEST)

    def start(self, *arguments: str, under: Sequence[str] = ()) -> subprocess.Popen[str]:
        plain = {n: v for n, v in os.environ.items() if n not in ("FORCE_COLOR", "NO_COLOR")}
        process = subprocess.Popen(
            [*under, sys.executable, "-c", _MAIN, str(self.folder / "locks"), "compare", *arguments],
            env=plain | {"TRACKSIDE_HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "tmp")},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=100)
        assert self.left_in_tmp() == []
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def left_in_tmp(self) -> list[str]:
        return sorted(os.listdir(self.folder / "tmp"))

    def record(self) -> dict[str, Any]:
        return RunStore(self.folder / "home").load("last")

    def underway(self, *arguments: str, under: Sequence[str] = ()) -> tuple[subprocess.Popen[str], list[int]]:
        """Start with a candidate that waits in its import; returns once it does, with all processes."""
        (self.folder / "new.py").write_text(
            "import os, time\nhere = os.environ['TMPDIR'] + '/here'\nopen(here, 'w').close()\n"
            "while os.path.exists(here): time.sleep(0.01)\ndef run(x): return x\n"
        )
        process = self.start("base.py", "new.py", *arguments, under=under)
        until(lambda: process.poll() is not None or self._waiting(), "the import")
        assert process.poll() is None, process.communicate()
        return process, descendants(process.pid)

    def go_on(self) -> None:
        """Let the candidate that waits in its import finish it."""
        for path in self._waiting():
            path.unlink()

    def _waiting(self) -> list[Path]:
        return list((self.folder / "tmp").glob("*/*/candidate/tmp/here"))
