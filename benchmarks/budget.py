"""How long a verdict takes, process starts included: default options, built-in workloads."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.context import Bar, Context, Outcome, compare, workload_pair
from trackside.comparison.selfcheck_plan import WORKLOADS

__all__ = ["run"]

LIMIT_SECONDS = {"cpu": 60.0, "cuda": 45.0}
DECIDED = ("faster", "slower", "equivalent")


def run(context: Context) -> Outcome:
    limit = LIMIT_SECONDS[context.kind]
    rows: list[dict[str, Any]] = []
    complete = True
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as store:
        for workload, percent in _tries(context.kind):
            # The first comparison measures ceilings, which are then kept: both are what a user meets.
            if context.left() < limit * 1.5:
                complete = False
                break
            with workload_pair(workload, percent) as (baseline, candidate):
                found = compare(context, baseline, candidate, Path(store))
            base = (found.document or {}).get("timings", {}).get("baseline", {}).get("device", {})
            rows.append(
                {
                    "workload": workload,
                    "percent": percent,
                    "verdict": found.verdict,
                    "ratio": found.ratio,
                    "seconds": found.seconds,
                    "baseline_us": base.get("p50_us"),
                    "why": ((found.document or {}).get("reasons") or [found.error])[0],
                }
            )
            context.say(f"  {workload} +{percent:g} %: {found.verdict} in {found.seconds:.1f} s")
    if not rows:
        return Outcome([], {"rows": rows}, complete, ["no time for one comparison"], excused=not complete)
    slowest = max(row["seconds"] for row in rows)
    decided = sum(row["verdict"] in DECIDED for row in rows)
    judged = sum(row["verdict"] in (*DECIDED, "inconclusive") for row in rows)
    seconds = f"slowest of {len(rows)}: {slowest:.1f} s"
    bars = [
        Bar("a comparison ends in time", f"≤ {limit:g} s", seconds, slowest <= limit),
        Bar(
            "it ends with a verdict, honest code is not refused",
            "all",
            f"{judged} of {len(rows)}, {decided} of them decided",
            judged == len(rows),
        ),
    ]
    return Outcome(bars, {"rows": rows}, complete)


def _tries(kind: str) -> list[tuple[str, float]]:
    mine = [w for w in WORKLOADS if w.kind == kind]
    if kind == "cpu":
        return [(w.name, percent) for w in mine for percent in (w.percent, 0.0, w.percent)]
    return [(w.name, 0.0) for w in mine]
