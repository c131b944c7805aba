"""How soon a false candidate is rejected, process starts included: cases from all over the red team."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.context import ROOT, Bar, Context, Outcome, compare

__all__ = ["run"]

LIMIT_SECONDS = 10.0
CASES = 11


def run(context: Context) -> Outcome:
    rows: list[dict[str, Any]] = []
    chosen = _chosen(context.kind)
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as store:
        for case in chosen:
            if context.left() < 2 * LIMIT_SECONDS:
                break
            found = compare(context, case.baseline_path, case.candidate_path, Path(store))
            if found.out_of_time:
                break
            reasons = (found.document or {}).get("reasons") or [found.error or ""]
            rows.append(
                {
                    "case": case.name,
                    "family": case.family,
                    "verdict": found.verdict,
                    "seconds": found.seconds,
                    "why": reasons[0].replace(f"{ROOT}/", "")[:200],
                }
            )
            context.say(f"  {case.name}: {found.verdict} in {found.seconds:.1f} s")
    complete = len(rows) == len(chosen)
    if not rows:
        return Outcome([], {"rows": rows}, complete, ["no time for one comparison"], excused=not complete)
    return Outcome(_bars(rows), {"rows": rows}, complete)


def _bars(rows: list[dict[str, Any]]) -> list[Bar]:
    rejected = [row["seconds"] for row in rows if row["verdict"] == "rejected"]
    all_of_them = Bar(
        "all of them are rejected", "all", f"{len(rejected)} of {len(rows)}", len(rejected) == len(rows)
    )
    if not rejected:
        return [all_of_them]
    middle = median(rejected)
    found = f"{middle:.1f} s over {len(rejected)} cases, slowest {max(rejected):.1f} s"
    in_time = middle <= LIMIT_SECONDS if len(rejected) >= CASES // 2 else None
    return [Bar("median time to a rejection", f"≤ {LIMIT_SECONDS:g} s", found, in_time), all_of_them]


def _chosen(kind: str) -> list[Any]:
    """Cases whose only right answer is a rejection, evenly over the corpus, which is ordered by family."""
    if kind == "cpu":
        from tests.redteam.corpus import CASES as corpus
    else:
        from tests.redteam.gpu.corpus import CASES as corpus
    strict = [case for case in corpus if case.kind == "false" and case.expect == {"rejected"}]
    return [strict[round((i + 0.5) * len(strict) / CASES)] for i in range(min(CASES, len(strict)))]
