"""Runs the parts, prints every bar with pass or FAIL, and writes results and the table in README.md."""

from __future__ import annotations

import argparse
import importlib
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import table
from benchmarks.context import RESULTS, Context

__all__ = ["main"]

# Short parts first: a time limit then costs the long ones, which can be added to later.
PARTS = {
    "cpu": ("store", "budget", "rejection", "selfcheck"),
    "cuda": ("budget", "ncu", "side_by_side", "selfcheck"),
}
GAINS = ("gains.predictions", "gains")
OTHERS = {
    "cpu": ("side_by_side", "ceilings", "trace", "mcp", *GAINS),
    "cuda": ("rejection", "ceilings", *GAINS),
}
"""Parts that work there too, if they are named."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--part", action="append", help="only this part; may be repeated")
    parser.add_argument("--seconds", type=float, help="stop in time for this many seconds, keep what is done")
    parser.add_argument("--results", type=Path, help="results folder (default: results/DATE-DEVICE)")
    parser.add_argument("--runs", type=int, help="selfcheck: A/A comparisons in all (default 100, GPU 60)")
    parser.add_argument("--jobs", type=int, default=1, help="selfcheck: as `trackside selfcheck --jobs`")
    parser.add_argument("--budget", type=float, help="seconds of each comparison (default: compare's own)")
    parser.add_argument(
        "--tries",
        type=int,
        help="side_by_side: tries of each tool, default 30; ours a tenth. trace: rounds, default 5. "
        "store: lists, default 15",
    )
    parser.add_argument("--hta", help="trace: a Python that has HolisticTraceAnalysis (default: this one)")
    parser.add_argument("--pair", help="gains: only this pair, the others as they are in the results")
    parser.add_argument("--archive", type=Path, help="also write the results folder as one .tar.gz")
    parser.add_argument("--table", action="store_true", help="only write README.md from the results")
    arguments = parser.parse_args()
    kind = "cpu" if arguments.device == "cpu" else "cuda"
    parts = arguments.part or list(PARTS[kind])
    known = PARTS[kind] + OTHERS[kind]
    unknown = set(parts) - set(known)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))} on {kind}; there are {', '.join(known)}")
    if arguments.table:
        table.write()
        return 0
    folder = arguments.results or RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{kind}"
    context = Context(
        arguments.device,
        arguments.seconds,
        folder.absolute(),
        runs=arguments.runs,
        jobs=arguments.jobs,
        budget=arguments.budget,
        tries=arguments.tries,
        hta=arguments.hta,
        pair=arguments.pair,
    )
    failed = False
    try:
        for part in parts:
            if context.left() < 5:
                context.say(f"{part}: no time left")
                continue
            context.say(f"== {part}")
            outcome = importlib.import_module(f"benchmarks.{part}").run(context)
            context.save(part, outcome)
            for bar in outcome.bars:
                print(bar.line(), flush=True)
            for note in outcome.notes:
                print(f"      {note}", flush=True)
            if outcome.failed and not outcome.bars:
                print(f"FAIL  {part}: nothing to judge it by", flush=True)
            failed |= outcome.failed
    except KeyboardInterrupt:
        context.say("interrupted; finished parts are kept")
        failed = True
    if context.folder.is_relative_to(RESULTS):
        table.write()
    if arguments.archive and context.folder.exists():
        with tarfile.open(arguments.archive, "w:gz") as archive:
            archive.add(context.folder, context.folder.name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
