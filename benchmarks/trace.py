"""From a large trace to its breakdown and its longest kernels: ours beside HolisticTraceAnalysis.

The trace is a real one of an H200, two steps of training, repeated with later times and new numbers. Both
tools answer the same question in processes of their own, by turns.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.context import ROOT, Bar, Context, Outcome, one_line
from benchmarks.repeated_trace import write_repeated

__all__ = ["run"]

SOURCE = ROOT / "tests" / "trace" / "data" / "train.json.gz"
LEAST_BYTES = 210_000_000
LARGE_BYTES = 1_000_000_000
TRIES = 5
FASTER, MOST_MEMORY, LARGE_LIMIT = 20.0, 2.0, 6 << 30
# Sums of tens of thousands of times in floats.
SAME = 1e-6
PACKAGE = "HolisticTraceAnalysis==0.5.0"
# Rounds times to whole microseconds otherwise, which takes 5 % off what a GPU computes.
EXACT = {"HTA_DISABLE_NS_ROUNDING": "1"}
PATIENCE_SECONDS = 600.0


def run(context: Context) -> Outcome:
    theirs = context.hta or sys.executable
    if not _has_hta(theirs):
        note = (
            f"{PACKAGE.split('==')[0]} is not installed: python -m venv VENV && "
            f"VENV/bin/pip install {PACKAGE}, then add --hta VENV/bin/python"
        )
        return Outcome([], {}, False, [note], excused=True)
    runs: dict[str, list[dict[str, Any]]] = {"hta": [], "times": [], "details": []}
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as scratch:
        path = Path(scratch) / "trace.json"
        turns = write_repeated(SOURCE, path, LEAST_BYTES)
        size = path.stat().st_size
        complete = True
        for attempt in range(context.tries or TRIES):
            if attempt and context.left() < 90:
                complete = False
                break
            # Every other round the other way about: a machine that slows down favours nobody.
            order = list(runs) if attempt % 2 else list(reversed(runs))
            for what in order:
                runs[what].append(_child(what, path, theirs))
        exact = _child("hta", path, theirs, EXACT)
        large = Path(scratch) / "large.json"
        write_repeated(SOURCE, large, LARGE_BYTES)
        large_size = large.stat().st_size
        whole = _child("whole", large, theirs)
    data = {
        "source": str(SOURCE.relative_to(ROOT)),
        "turns": turns,
        "bytes": size,
        "events": runs["times"][0]["events"],
        "runs": runs,
        "exact": exact,
        "large": {"bytes": large_size, **whole},
    }
    bars = [_speed(runs), _memory(runs, size), _same(exact, runs), _large(whole, large_size)]
    return Outcome(bars, data, complete, _notes(runs, size))


def _has_hta(python: str) -> bool:
    done = subprocess.run([python, "-P", "-c", "import hta.trace_analysis"], capture_output=True, check=False)
    return done.returncode == 0


def _child(what: str, path: Path, theirs: str, more: dict[str, str] | None = None) -> dict[str, Any]:
    python = theirs if what == "hta" else sys.executable
    script = Path(__file__).with_name("trace_child.py")
    source = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    began = time.perf_counter()
    done = subprocess.run(
        [python, "-P", str(script), what, str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        env=os.environ | {"PYTHONPATH": source if what != "hta" else ""} | (more or {}),
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{what}: {one_line(done.stderr[-400:])}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"process_seconds": seconds}


def _ratio(runs: dict[str, list[dict[str, Any]]], ours: str, key: str) -> float:
    """Of the best runs: what else a machine does only ever adds time, and more to whoever runs longer."""
    best = {what: min(one[key] for one in runs[what]) for what in ("hta", ours)}
    return float(best["hta"] / best[ours])


def _speed(runs: dict[str, list[dict[str, Any]]]) -> Bar:
    ratio = _ratio(runs, "times", "seconds")
    rounds = [
        theirs["seconds"] / mine["seconds"] for theirs, mine in zip(runs["hta"], runs["times"], strict=True)
    ]
    mine, theirs = (min(one["seconds"] for one in runs[what]) for what in ("times", "hta"))
    return Bar(
        "to the breakdown and the longest kernels, against HolisticTraceAnalysis",
        f"≥ {FASTER:g} times as fast",
        f"{ratio:.1f} times: {mine:.2f} s, theirs {theirs:.1f} s, best of {len(rounds)}; "
        f"by rounds {statistics.median(rounds):.1f} [{min(rounds):.1f}, {max(rounds):.1f}]",
        ratio >= FASTER and statistics.median(rounds) >= FASTER,
    )


def _memory(runs: dict[str, list[dict[str, Any]]], size: int) -> Bar:
    """Of both ways to read: the one that was not timed must not need more than allowed either."""
    most = {what: max(one["peak_bytes"] for one in found) / size for what, found in runs.items()}
    return Bar(
        "peak memory by the size of the file",
        f"≤ {MOST_MEMORY:g} times",
        f"{most['times']:.2f} times, with details {most['details']:.2f} times, "
        f"theirs {most['hta']:.1f} times, of {size / 1e6:.0f} MB",
        max(most["times"], most["details"]) <= MOST_MEMORY,
    )


def _same(exact: dict[str, Any], runs: dict[str, list[dict[str, Any]]]) -> Bar:
    """A comparison of two answers is worth something where they are one."""
    apart = [_apart(exact, one) for what in ("times", "details") for one in runs[what]]
    worst = max(apart)
    return Bar(
        "both give one answer: compute, copies, rest, longest kernels",
        f"within {SAME:g}",
        f"{worst:.1g} apart" if math.isfinite(worst) else "other kernels are the longest",
        worst <= SAME,
    )


def _apart(theirs: dict[str, Any], ours: dict[str, Any]) -> float:
    if [name for name, _ in theirs["top"]] != [name for name, _ in ours["top"]]:
        return math.inf
    pairs = [(theirs[key], ours[key]) for key in ("compute_us", "other_us", "idle_us")]
    pairs += [(one[1], other[1]) for one, other in zip(theirs["top"], ours["top"], strict=True)]
    return max(abs(one / other - 1) for one, other in pairs)


def _large(whole: dict[str, Any], size: int) -> Bar:
    peak = whole["peak_bytes"]
    return Bar(
        f"a trace of {size / 1e9:.2f} GB is analysed, to its critical path",
        f"within {LARGE_LIMIT >> 30} GiB",
        f"{peak / (1 << 30):.2f} GiB, {whole['seconds']:.0f} s, {whole['events']:,} events",
        peak <= LARGE_LIMIT,
    )


def _notes(runs: dict[str, list[dict[str, Any]]], size: int) -> list[str]:
    def told(ours: str, key: str) -> str:
        return f"{_ratio(runs, ours, key):.1f}"

    versions = ", ".join(f"{name} {version}" for name, version in runs["hta"][0]["versions"].items())
    return [
        f"the other tool: {versions}",
        f"with start and imports {told('times', 'process_seconds')} times as fast, "
        f"by CPU time {told('times', 'cpu_seconds')}; all details read {told('details', 'seconds')} times; "
        "one process and one core each",
        f"{size:,} bytes of JSON, not compressed",
    ]
