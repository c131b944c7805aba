"""What `profile` says the repair of each broken program would gain, before anything is measured."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.context import ROOT, Context, Outcome

__all__ = [
    "FOLDER",
    "PAIRS",
    "broken_files",
    "known_rows",
    "program_environment",
    "repaired",
    "rule_of",
    "rules_sha256",
    "run",
]

FOLDER = Path(__file__).parent
PAIRS = FOLDER / "pairs"
PROGRAM = FOLDER / "program.py"
# Long enough for windows by the clock, which come last after five seconds.
_PROGRAM_SECONDS = 16
_PAIR_SECONDS = 60


def run(context: Context) -> Outcome:
    rows = known_rows(context, "gains.predictions")
    complete = True
    for broken in broken_files(context.kind):
        if context.pair not in (None, broken.stem.removesuffix("_broken")):
            continue
        if context.left() < _PAIR_SECONDS:
            complete = False
            break
        row = {
            "pair": broken.stem.removesuffix("_broken"),
            "rule": rule_of(broken),
            **predicted(context, broken),
        }
        context.say(f"  {row['pair']}: {row['rule']} {told(row['gain'])}")
        rows.append(row)
    rows.sort(key=lambda row: row["pair"])
    notes = [f"{row['pair']}: {row['rule']} {told(row['gain'])}" for row in rows]
    return Outcome([], {"rules_sha256": rules_sha256(), "rows": rows}, complete, notes, excused=True)


def known_rows(context: Context, part: str) -> list[dict[str, Any]]:
    """Those of the other pairs, where one alone is asked for."""
    path = context.folder / f"{part}.json"
    if context.pair is None or not path.exists():
        return []
    rows = json.loads(path.read_text())["data"]["rows"]
    return [row for row in rows if row["pair"] != context.pair]


def broken_files(kind: str) -> list[Path]:
    return sorted((PAIRS / kind).glob("*_broken.py"))


def repaired(broken: Path) -> Path:
    return broken.with_name(broken.name.replace("_broken", "_repaired"))


def rule_of(program: Path) -> str:
    """The rule that a pair is about: the first word of its docstring."""
    text = ast.get_docstring(ast.parse(program.read_text())) or ""
    return text.partition(":")[0]


def rules_sha256() -> str:
    """Of all that a prediction comes from, so that none is measured with other rules."""
    found = sha256()
    for folder in ("diagnose", "profiling", "trace"):
        for file in sorted((ROOT / "src" / "trackside" / folder).rglob("*.py")):
            found.update(file.read_bytes())
    return found.hexdigest()


def program_environment(kind: str) -> dict[str, str]:
    """One thread on a CPU: two on a shared machine wait for each other."""
    return {**os.environ, **({"OMP_NUM_THREADS": "1"} if kind == "cpu" else {})}


def predicted(context: Context, broken: Path) -> dict[str, Any]:
    """The finding of the pair's rule, as a user would read it; `gain` is None where there is none."""
    with tempfile.TemporaryDirectory(prefix="trackside-gains-") as store:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "trackside", "profile", "--json"),
                *(str(PROGRAM), str(broken), context.device, str(_PROGRAM_SECONDS)),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            env=program_environment(context.kind) | {"TRACKSIDE_HOME": store},
        )
    try:
        record = json.loads(done.stdout)
    except ValueError:
        return {"gain": None, "error": done.stderr[-400:]}
    mine = [one for one in record["findings"] if one["id"] == rule_of(broken)]
    seen: dict[str, Any] = {
        "gain": None,
        "step_ms": record["step_ms"],
        "step_spread": record["step_spread"],
        "steps_found_by": record["steps_found_by"],
        "others": [{"rule": one["id"], **one["gain"]} for one in record["findings"] if one not in mine],
        "limits": [one["what"] for one in record["trust"]],
    }
    if mine:
        best = max(mine, key=lambda one: one["gain"]["mid"])
        seen |= {"gain": best["gain"], "confidence": best["confidence"], "line": best["line"]}
        seen["evidence"] = best["evidence"]
    return seen


def told(gain: dict[str, float] | None) -> str:
    """For a line of text."""
    return f"predicts {gain['low']:.1%} to {gain['high']:.1%}" if gain else "predicts nothing"
