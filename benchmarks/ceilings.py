"""`trackside ceilings` twice, and on a GPU beside a CUDA C++ program that shares no code with it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.context import ROOT, Bar, Context, Outcome, one_line

__all__ = ["judge", "run"]

SOURCE = ROOT / "benchmarks" / "independent" / "ceilings.cu"
LIMIT_SECONDS = {"cpu": 30.0, "cuda": 60.0}
AGREEMENT = 0.03
# A host that others share was twice as fast from one half minute to the next: its own are told, not judged.
HOSTS_OWN = ("pageable", "launch", "event", "synchronise", "allocate")


def run(context: Context) -> Outcome:
    places = (
        ["cpu", "disk"] if context.kind == "cpu" else [context.device if ":" in context.device else "cuda"]
    )
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as scratch:
        runs = [_measured(places, Path(scratch)) for _ in range(2)]
        independent = _independent(Path(scratch), notes) if context.kind == "cuda" else {}
    failed = [text for document, text in runs if document is None]
    if failed:
        return Outcome([], {"error": failed[0]}, False, [one_line(failed[0])])
    documents = [document for document, _ in runs if document is not None]
    bars = judge(documents, independent, context.kind)
    notes += [text for text in [_hosts_own(documents)] if text]
    data = {"runs": documents, "independent": independent}
    return Outcome(bars, data, bool(independent) or context.kind == "cpu", notes)


def judge(documents: list[dict[str, Any]], independent: dict[str, float], kind: str) -> list[Bar]:
    """The bars: time, agreement of two runs (on a GPU), agreement with the other program."""
    limit = LIMIT_SECONDS[kind]
    slowest = max(document["seconds"] for document in documents)
    bars = [Bar("a whole measurement ends in time", f"≤ {limit:g} s", f"{slowest:.0f} s", slowest <= limit)]
    first, second = ({c["name"]: c for c in document["ceilings"]} for document in documents)
    if kind == "cuda":
        apart = {
            name: abs(second[name]["value"] / row["value"] - 1)
            for name, row in first.items()
            if name in second and not _is_hosts(name)
        }
        bars.append(_within("two runs agree", apart))
        off = {
            name: abs(first[name]["value"] / value - 1)
            for name, value in independent.items()
            if name in first
        }
        if off:
            bars.append(_within("a CUDA C++ program finds the same", off))
    return bars


def _is_hosts(name: str) -> bool:
    return any(word in name for word in HOSTS_OWN)


def _hosts_own(documents: list[dict[str, Any]]) -> str:
    first, second = (
        {c["name"]: c["value"] for c in d["ceilings"] if _is_hosts(c["name"])} for d in documents
    )
    apart = [f"{name} {second[name] / value - 1:+.0%}" for name, value in first.items() if name in second]
    return f"the host's own, second run against the first: {', '.join(apart)}" if apart else ""


def _within(name: str, apart: dict[str, float]) -> Bar:
    worst = max(apart, key=lambda key: apart[key])
    found = f"{len(apart)} figures, the furthest {worst}: {apart[worst]:.1%}"
    return Bar(name, f"within {AGREEMENT:.0%}", found, apart[worst] <= AGREEMENT)


def _measured(places: list[str], scratch: Path) -> tuple[dict[str, Any] | None, str]:
    command = [sys.executable, "-m", "trackside", "ceilings", *places, "--fresh", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=scratch, check=False, timeout=600)
    return (json.loads(done.stdout), "") if done.returncode == 0 else (None, done.stderr or done.stdout)


def _independent(scratch: Path, notes: list[str]) -> dict[str, float]:
    compiler = shutil.which("nvcc") or next(
        (str(path) for path in sorted(Path("/usr/local").glob("cuda*/bin/nvcc"), reverse=True)), None
    )
    if compiler is None:
        notes.append("found no nvcc on PATH or in /usr/local/cuda*/bin: the CUDA C++ program was not run")
        return {}
    program = scratch / "ceilings"
    built = subprocess.run(
        [
            compiler,
            "-O3",
            "-std=c++17",
            "-arch=native",
            str(SOURCE),
            "-lcublas",
            "-lcurand",
            "-o",
            str(program),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if built.returncode:
        notes.append(f"nvcc failed: {one_line(built.stderr)}")
        return {}
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        notes.append(f"the CUDA C++ program failed: {one_line(done.stderr)}")
        return {}
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["name"]: float(row["value"]) for row in rows}
