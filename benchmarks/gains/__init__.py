"""Are predicted gains true? Predicts from a broken program, then measures it against its repaired twin.

`pairs/` holds the programs; the first word of a docstring names the rule. All run on one thread: what is
compared is the prediction with the outcome, and two threads on a shared machine wait for each other.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.context import Bar, Context, Outcome
from trackside.diagnose.diagnosis import diagnose
from trackside.diagnose.evidence import Machine, gather
from trackside.diagnose.workbench import Workbench
from trackside.profiling.captured import read_capture
from trackside.profiling.launch import launch
from trackside.profiling.program import Program

__all__ = ["run"]

PAIRS = Path(__file__).parent / "pairs"
CLOCK = Path(__file__).with_name("steps.py")
ROUNDS = 3
"""Of broken, repaired, repaired, broken."""
WANTED = 0.8
_PAIR_SECONDS = 60


def run(context: Context) -> Outcome:
    broken = sorted(PAIRS.glob("*_broken.py"))
    rows: list[dict[str, Any]] = []
    complete = True
    with one_thread(), Workbench(threads=1) as workbench:
        for program in broken:
            if context.left() < _PAIR_SECONDS:
                complete = False
                break
            row = predicted(program, workbench)
            context.say(f"  {row['pair']}: {row['rule']} predicts {_range(row['gain'])}")
            rows.append(row)
        # Predictions stand before anything is measured.
        context.save("gains-predicted", Outcome([], {"rows": rows}, complete, excused=True))
        for row in rows:
            if context.left() < _PAIR_SECONDS:
                complete = False
                break
            row |= realised(row["pair"])
            gain = row["gain"]
            row["inside"] = gain is not None and gain["low"] <= row["realised"] <= gain["high"]
            context.save("gains-measured", Outcome([], {"rows": rows}, False, excused=True))
            context.say(
                f"  {row['pair']}: predicted {_range(row['gain'])}, realised {row['realised']:.1%}, "
                f"of the thread's own time {row['realised_cpu']:.1%}"
            )
    measured = [row for row in rows if "realised" in row]
    if not measured:
        return Outcome([], {"rows": rows}, complete, ["no time for one pair"], excused=not complete)
    found = sum(row["gain"] is not None for row in measured)
    inside = sum(row["inside"] for row in measured)
    bars = [
        Bar("a planted problem is found", "all", f"{found} of {len(measured)}", found == len(measured)),
        Bar(
            "the realised gain lies in the predicted range",
            f"≥ {WANTED:.0%}",
            f"{inside} of {len(measured)}",
            inside >= WANTED * len(measured) if complete else None,
        ),
    ]
    notes = [
        f"{row['pair']}: {row['rule']} predicted {_range(row['gain'])}, realised {row['realised']:.1%} "
        f"({row['realised_low']:.1%} to {row['realised_high']:.1%} by rounds; {row['realised_cpu']:.1%} "
        "of the thread's own time)"
        for row in measured
    ]
    return Outcome(bars, {"rows": rows}, complete, notes)


@contextmanager
def one_thread() -> Iterator[None]:
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def rule_of(program: Path) -> str:
    """The rule that a pair is about."""
    text = ast.get_docstring(ast.parse(program.read_text())) or ""
    return text.partition(":")[0]


def predicted(program: Path, workbench: Workbench) -> dict[str, Any]:
    """What the profile of the broken program says the repair would gain."""
    rule = rule_of(program)
    row: dict[str, Any] = {"pair": program.stem.removesuffix("_broken"), "rule": rule, "gain": None}
    with tempfile.TemporaryDirectory(prefix="trackside-gains-") as place:
        folder = Path(place)
        with (folder / "out").open("wb") as out:
            launch(
                Program(str(program)),
                "trackside.profiling.capture:around",
                {"warmup": 5, "steps": 10},
                folder,
                stdout=out.fileno(),
            )
        evidence = gather(read_capture(folder), [program.name], Machine(cpus=2, memory_free=0.5), workbench)
    if evidence is None:
        return row
    mine = [one for one in diagnose(evidence).findings if one.id == rule]
    if mine:
        best = mine[0]
        row |= {"gain": best.gain.model_dump(), "confidence": best.confidence, "line": best.line}
    return row


def realised(pair: str) -> dict[str, Any]:
    """Both programs in turn, each run a process of its own; a run counts by the median of its steps."""
    both = [PAIRS / f"{pair}_broken.py", PAIRS / f"{pair}_repaired.py"]
    wall: tuple[list[float], list[float]] = ([], [])
    own: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for arm in (0, 1, 1, 0):
            step = _step_ns(both[arm])
            wall[arm].append(step[0])
            own[arm].append(step[1])
    rounds = [1 - min(wall[1][at : at + 2]) / min(wall[0][at : at + 2]) for at in range(0, len(wall[0]), 2)]
    return {
        "broken_ms": median(wall[0]) / 1e6,
        "repaired_ms": median(wall[1]) / 1e6,
        "realised": median(rounds),
        "realised_low": min(rounds),
        "realised_high": max(rounds),
        "realised_cpu": 1 - min(own[1]) / min(own[0]),
    }


def _step_ns(program: Path) -> tuple[float, float]:
    """Medians of a run's steps: on the wall, and the thread's own time."""
    # By its file: as a module it would bring ours into the program's process.
    done = subprocess.run(
        [sys.executable, str(CLOCK), str(program)], capture_output=True, check=True, timeout=120
    )
    steps = json.loads(done.stdout)
    steady = steps[len(steps) // 4 :]
    return median(one[0] for one in steady), median(one[1] for one in steady)


def _range(gain: dict[str, float] | None) -> str:
    return f"{gain['low']:.1%} to {gain['high']:.1%}" if gain else "nothing"
