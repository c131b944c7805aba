"""Runs corpus cases through `compare`: `python -m tests.redteam.judged [--full] [--device cuda] [NAME …]`.

Without --full everything but the statistics runs. `passes` then stands for: no check objected.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.context import commit
from tests.redteam.corpus import HERE, Case

from trackside.comparison.options import budget_of
from trackside.comparison.selfcheck_plan import source_sha256
from trackside.comparison.trial import Crew, Options, default_threads, run_trial
from trackside.machine.facts import facts
from trackside.records.errors import TracksideError
from trackside.store.files import read_json, write_json

__all__ = ["PASSES", "RACES", "STATISTICAL", "Judged", "cases", "judge", "knock_out", "main"]

PASSES = "passes"
BUILD_SECONDS = 90.0
# Its first call only sleeps, for up to a minute.
HANGS = {"forgery_pass_then_hang": 10.0}
# Checks that need timed quads: a case that only these catch passes the rest.
STATISTICAL = {"clocks-agree", "above-floor", "no-leftovers", "baseline-undisturbed", "total-time-agrees"}
# Right as long as nobody is late, so a few calls may all be right: the full run makes thousands.
RACES = {"arithmetic_race", "gpu_stale_join_event"}


class _TimeIsUp(Exception):
    """`--seconds` have gone by with cases left."""


@dataclass
class Judged:
    """What compare said about one case."""

    name: str
    verdict: str
    caught_by: str | None
    detail: str
    seconds: float
    ratio: float | None

    def fits(self, case: Case, full: bool) -> bool:
        """Whether the case allows this verdict.

        Without statistics nobody is called faster or slower: a pass is all that an honest case can get, and
        right for a false one that only timing or luck gives away.
        """
        if full or (case.kind == "false" and self.verdict != PASSES):
            return self.verdict in case.expect
        if case.kind == "honest":
            return self.verdict == PASSES
        only_timing = not set(case.caught_by) - STATISTICAL or "equivalent" in case.expect
        return only_timing or case.name in RACES


def cases(device: str) -> list[Case]:
    if device == "cpu":
        from tests.redteam.corpus import CASES

        return list(CASES)
    from tests.redteam.gpu.corpus import CASES as GPU_CASES

    return list(GPU_CASES)


def judge(
    case: Case,
    crew: Crew | None,
    store: Path,
    full: bool = False,
    budget: float | None = None,
    disabled: frozenset[str] = frozenset(),
) -> Judged:
    """One case through compare, in this process's crew."""
    options = Options(
        HERE / case.baseline,
        HERE / case.candidate,
        device=case.device,
        budget=budget_of(budget, False, case.device),
        checks_only=not full,
        disabled=disabled,
        store=store,
        build_timeout=HANGS.get(case.name, BUILD_SECONDS),
    )
    began = time.monotonic()
    try:
        record = run_trial(options, crew=crew)
    except TracksideError as error:
        return Judged(case.name, f"error:{error.kind}", None, error.message, time.monotonic() - began, None)
    failed = [c for c in record.checks if c.status == "fail"]
    verdict = record.verdict
    if not full and verdict == "inconclusive" and not failed:
        verdict = PASSES
    ratio = record.speedup.ratio if record.speedup else None
    return Judged(
        case.name,
        verdict,
        failed[0].id if failed else None,
        "; ".join(record.reasons)[:400],
        time.monotonic() - began,
        ratio,
    )


def knock_out(case: Case, crew: Crew, store: Path) -> dict[str, Any]:
    """Switch off whatever catches a case, one check after another, until it gets through."""
    off: list[str] = []
    for _ in range(len(STATISTICAL) + 12):
        result = judge(case, crew, store, disabled=frozenset(off))
        if result.caught_by is None or result.caught_by in off:
            break
        off.append(result.caught_by)
    return {"name": case.name, "off": off, "through": result.verdict == PASSES, "left": result.detail}


def _row(case: Case, arguments: argparse.Namespace, crew: Crew, store: Path) -> dict[str, Any]:
    result = judge(case, None if arguments.full else crew, store, arguments.full, arguments.budget)
    fits = result.fits(case, arguments.full)
    told = (
        f"{case.kind:6} {case.name:38} {result.verdict:15} {result.caught_by or '':22} {result.seconds:5.1f}s"
    )
    print(f"{'ok ' if fits else 'BAD'} {told} s  {result.detail[:150]}", flush=True)
    row = {**vars(result), "kind": case.kind, "family": case.family, "fits": fits}
    if arguments.knock_out and case.kind == "false":
        row["knock_out"] = knock_out(case, crew, store)
        print(f"      without {row['knock_out']['off']}: through={row['knock_out']['through']}", flush=True)
    return row


def _naive_rows(chosen: list[Case], device: str) -> Iterator[dict[str, Any]]:
    """What the usual way of checking says of each case, as it comes."""
    if device == "cpu":
        from tests.redteam.naive import run_naive

        for case in chosen:
            result = run_naive(case, None)
            fits = result.fooled if case.kind == "false" else result.accepted
            yield {"name": case.name, "accepted": result.accepted, "speedup": result.speedup, "fits": fits}
        return
    from tests.redteam.gpu import naive

    for seen in naive.run_all(chosen):
        fits = seen["fooled"] if seen["kind"] == "false" else seen["accepted"]
        yield {name: seen[name] for name in ("name", "accepted", "speedup", "error")} | {"fits": fits}


def _judged_rows(
    chosen: list[Case], arguments: argparse.Namespace, crew: Crew, store: Path
) -> Iterator[dict[str, Any]]:
    end = time.monotonic() + arguments.seconds
    for number, case in enumerate(chosen):
        if time.monotonic() > end:
            raise _TimeIsUp(f"stopped after {number} of {len(chosen)} cases: the time is up")
        yield _row(case, arguments, crew, store)


def _save(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """After every case: a run that is cut short keeps what it has."""
    if arguments.naive:
        # A win that needs one kind of processor (slow subnormal numbers, say) was shown once and for all.
        shown = {row["name"] for row in _earlier(arguments, set()) if row["fits"]}
        rows = [row for row in rows if row["fits"] or row["name"] not in shown]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    document = _asked(arguments) | {
        **_sources(arguments.device),
        "software": asdict(facts().software),
        "rows": _earlier(arguments, {row["name"] for row in rows}) + rows,
    }
    write_json(arguments.out, json.loads(_without_paths(json.dumps(document))))


def _asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """What two runs must share for their rows to stand in one file."""
    return {"full": arguments.full, "naive": arguments.naive, "device": arguments.device}


def _sources(device: str) -> dict[str, Any]:
    """What gave a row: a run in parts may span commits and machines, and the matrix names each."""
    machine = facts()
    return {
        "machine": f"{machine.cpu.model}, {machine.cpu.threads} threads"
        if device == "cpu"
        else ", ".join(gpu.name or "GPU" for gpu in machine.gpus),
        "source_sha256": source_sha256(),
        "commit": commit() or "unknown",
        "date": datetime.now(UTC).date().isoformat(),
    }


def _without_paths(text: str) -> str:
    """Results are committed: where this machine keeps its files is nobody's business."""
    temporary = re.escape(tempfile.gettempdir())
    return re.sub(rf"{temporary}/[^/\s\"']+", "TMP", text).replace(f"{HERE.parents[1]}/", "")


def _earlier(arguments: argparse.Namespace, now: set[str]) -> list[dict[str, Any]]:
    """Rows of other cases that an earlier run gave to the same question: a run in parts adds up."""
    try:
        document = read_json(arguments.out)
    except FileNotFoundError:
        return []
    if any(document.get(key) != value for key, value in _asked(arguments).items()):
        return []
    # Rows of the time when all of a file had one commit have none of their own.
    whole = {key: document[key] for key in _sources(arguments.device)}
    return [whole | row for row in document["rows"] if row["name"] not in now]


def _in_parts(arguments: argparse.Namespace, chosen: list[Case]) -> int:
    """All jobs side by side; those that measure wait for each other at the device's lock."""
    given = vars(arguments)
    switches = [f"--{name}" for name in ("full", "naive", "knock-out") if given[name.replace("-", "_")]]
    values = [
        f"--{name}={given[name]}"
        for name in ("device", "budget", "seconds", "jobs")
        if given[name] is not None
    ]
    names = [case.name for case in chosen]
    command = [sys.executable, "-m", "tests.redteam.judged", *names, *switches, *values]
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder) / f"{part}.json" for part in range(1, arguments.jobs + 1)]
        jobs = [
            subprocess.Popen([*command, "--part", str(part), "--out", str(out)])
            for part, out in enumerate(outs, 1)
        ]
        rows: list[dict[str, Any]] = []
        try:
            while any(job.poll() is None for job in jobs):
                time.sleep(1)
                rows = _gather(arguments, outs, rows)
        finally:
            # Ctrl-C reaches the jobs too: they end by themselves, and what they had is kept.
            codes = [job.wait() for job in jobs]
            rows = _gather(arguments, outs, rows)
    missing = {case.name for case in chosen} - {row["name"] for row in rows}
    if missing:
        print(f"no answer for {len(missing)} cases: {', '.join(sorted(missing))}", file=sys.stderr)
    # Any code but 0: that of a job which a signal ended is negative.
    return 1 if any(codes) or missing else 0


def _gather(
    arguments: argparse.Namespace, outs: list[Path], before: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """All that the jobs have so far, saved if it is more than before: this run may be killed."""
    rows = [row for out in outs if out.exists() for row in read_json(out)["rows"]]
    if arguments.out and len(rows) > len(before):
        _save(arguments, rows)
    return rows


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kind", choices=("false", "honest"))
    parser.add_argument("--budget", type=float, help="seconds (default: compare's own)")
    parser.add_argument(
        "--knock-out", action="store_true", help="also switch off what catches each false case"
    )
    parser.add_argument("--naive", action="store_true", help="run the usual way of checking instead")
    parser.add_argument("--jobs", type=int, default=1, help="processes that take turns over the cases")
    parser.add_argument("--part", type=int, default=0, help="which of the jobs this is; they count from 1")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after this long")
    parser.add_argument(
        "--rest", action="store_true", help="only cases without a row of these sources in --out"
    )
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(argv)
    chosen = [c for c in cases(arguments.device) if arguments.kind in (None, c.kind)]
    unknown = set(arguments.names) - {c.name for c in chosen}
    if unknown:
        kind = f"{arguments.kind} " if arguments.kind else ""
        parser.error(f"no {kind}case {', '.join(sorted(unknown))} on {arguments.device}")
    if arguments.rest and not arguments.out:
        parser.error("--rest needs --out")
    if arguments.names:
        chosen = [c for c in chosen if c.name in arguments.names]
    if arguments.rest:
        sources = source_sha256()
        done = {row["name"] for row in _earlier(arguments, set()) if row["source_sha256"] == sources}
        chosen = [c for c in chosen if c.name not in done]
    if arguments.jobs > 1 and not arguments.part:
        return _in_parts(arguments, chosen)
    if arguments.part:
        chosen = chosen[arguments.part - 1 :: arguments.jobs]
    rows: list[dict[str, Any]] = []
    bad = 0
    with tempfile.TemporaryDirectory() as store, Crew(default_threads(arguments.device)) as crew:
        if arguments.naive:
            told = _naive_rows(chosen, arguments.device)
        else:
            told = _judged_rows(chosen, arguments, crew, Path(store))
        try:
            for row in told:
                if arguments.naive:
                    print("ok " if row["fits"] else "BAD", *row.values(), flush=True)
                rows.append(row | _sources(arguments.device))
                bad += not row["fits"]
                if arguments.out:
                    _save(arguments, rows)
        except _TimeIsUp as stop:
            print(stop, file=sys.stderr)
            return 1
    print(f"{len(rows)} cases, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
