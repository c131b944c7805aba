"""What every part shares: its device and time limit, child comparisons, bars, and where results go."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from trackside.comparison.selfcheck_plan import source_sha256, write_workload
from trackside.machine.facts import facts, fingerprint

__all__ = [
    "RESULTS",
    "ROOT",
    "Bar",
    "Compared",
    "Context",
    "Outcome",
    "commit",
    "compare",
    "one_line",
    "short_commit",
    "workload_pair",
]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"

# What a comparison may take beyond its budget before it counts as hung.
GRACE_SECONDS = 120.0
# Characters of a message that a bar shows; the results keep all of it.
_SHOWN = 200


@dataclass(frozen=True)
class Bar:
    """One thing that must hold, and what was found."""

    name: str
    wanted: str
    found: str
    passed: bool | None
    """None when too little was run to tell."""

    def line(self) -> str:
        word = {True: "pass", False: "FAIL", None: "open"}[self.passed]
        return f"{word}  {self.name}: {self.found} (wanted: {self.wanted})"


@dataclass
class Outcome:
    """What a part found; parts stopped by the time limit say so and keep what they have."""

    bars: list[Bar]
    data: dict[str, Any]
    complete: bool = True
    notes: list[str] = field(default_factory=list)
    excused: bool = False
    """No bar, and that is no failure: the time was up, or a tool is not here. A note says which."""

    @property
    def failed(self) -> bool:
        """A bar is missed, or there is none to miss: a part that fell over must not pass for a good one."""
        return any(bar.passed is False for bar in self.bars) or not (self.bars or self.excused)


@dataclass
class Context:
    device: str
    seconds: float | None
    folder: Path
    runs: int | None = None
    jobs: int = 1
    budget: float | None = None
    tries: int | None = None
    pair: str | None = None
    """Of `gains`: only this one, beside what is known of the others."""
    hta: str | None = None
    """A Python that has HolisticTraceAnalysis."""
    began: float = field(default_factory=time.monotonic)
    identity: dict[str, Any] = field(default_factory=lambda: identity())

    @property
    def kind(self) -> str:
        return "cpu" if self.device == "cpu" else "cuda"

    def left(self) -> float:
        return math.inf if self.seconds is None else self.seconds - (time.monotonic() - self.began)

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def save(self, part: str, outcome: Outcome) -> Path:
        document = {
            "part": part,
            "device": self.device,
            **self.identity,
            "complete": outcome.complete,
            "notes": outcome.notes,
            "bars": [asdict(bar) for bar in outcome.bars],
            "data": outcome.data,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{part}.json"
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return path


def one_line(text: str) -> str:
    """What a program said, fit for a bar and a cell of the table, without this machine's paths."""
    flat = " ".join(text.replace(f"{ROOT}/", "").split())
    return flat if len(flat) <= _SHOWN else f"{flat[:_SHOWN]} …"


def identity() -> dict[str, Any]:
    """Machine, versions, commit and date: what a figure is worth nothing without."""
    machine = facts()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "source_sha256": source_sha256(),
        "machine": {
            "fingerprint": fingerprint(machine),
            "cpu": machine.cpu.model,
            "cpus": len(os.sched_getaffinity(0)),
            "memory_bytes": machine.memory.total_bytes,
            "gpus": [gpu.name for gpu in machine.gpus],
            "driver": machine.gpus[0].driver if machine.gpus else None,
            "kernel": machine.kernel,
        },
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in ("trackside", "torch", "triton", "numpy")},
        },
    }


def commit() -> str | None:
    """The commit, marked where the sources differ from it; TRACKSIDE_COMMIT names it for a bare copy."""
    named = os.environ.get("TRACKSIDE_COMMIT")
    if named:
        return named

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        head, changed = git("rev-parse", "HEAD"), git("status", "--porcelain", "--", "src")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}{' with changes' if changed else ''}"


def short_commit(name: str | None) -> str:
    """A commit for people to read: the hash cut short, the mark of changed sources kept."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28}\b", r"\1", name or "unknown")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        if name == "trackside":
            import trackside

            return trackside.__version__
        return None


@dataclass(frozen=True)
class Compared:
    """One `trackside compare` process from start to end."""

    document: dict[str, Any] | None
    seconds: float
    error: str | None
    store: Path
    out_of_time: bool = False
    """Ended by the benchmark's own time limit, which says nothing about compare."""

    @property
    def verdict(self) -> str:
        return self.document["verdict"] if self.document else "error"

    @property
    def ratio(self) -> float | None:
        speed = (self.document or {}).get("speedup")
        return speed["ratio"] if speed else None


def compare(context: Context, baseline: Path, candidate: Path, store: Path, *options: str) -> Compared:
    """Runs one comparison as a user would, and times the whole process."""
    budget = () if context.budget is None else ("--budget", f"{context.budget:g}")
    command = [
        *(sys.executable, "-m", "trackside", "compare", str(baseline), str(candidate), "--json"),
        *("--device", context.device, *budget, *options),
    ]
    left, patience = context.left(), (context.budget or 60.0) * 2 + GRACE_SECONDS
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, stdout=out, stderr=err, env=os.environ | {"TRACKSIDE_HOME": str(store)}
        )
        try:
            process.wait(max(1.0, min(left, patience)))
            late = None
        except subprocess.TimeoutExpired:
            late = "stopped: no time left" if left < patience else f"stopped: no end after {patience:g} s"
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        seconds = time.monotonic() - began
        out.seek(0)
        err.seek(0)
        text, complaint = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if late or document is None or "verdict" not in document:
        error = late or ((document or {}).get("error") or {}).get("message") or complaint[-400:]
        return Compared(None, seconds, error, store, out_of_time=bool(late) and left < patience)
    return Compared(document, seconds, None, store)


@contextmanager
def workload_pair(workload: str, percent: float, swapped: bool = False) -> Iterator[tuple[Path, Path]]:
    """Baseline and candidate files of a built-in workload, the candidate with that much more work."""
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as scratch:
        files = []
        for name, extra in (("one", 0.0), ("two", percent)):
            path = Path(scratch) / name / f"{workload}.py"
            path.parent.mkdir()
            write_workload(workload, extra, path)
            files.append(path)
        if swapped:
            files.reverse()
        yield files[0], files[1]
