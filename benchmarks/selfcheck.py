"""Error rates of compare by `trackside selfcheck`; a second run with the same folder completes the first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.context import Bar, Context, Outcome, one_line
from trackside.comparison.selfcheck_plan import AA_PER_UNIT, Experiment

__all__ = ["run"]

# Comparisons of identical code that the bar is about, and how many of them may be called faster or slower.
TOTAL = {"cpu": 100, "cuda": 60}
# Those with a slowdown. On a CPU the bar names no number, and one takes half a minute.
INJECTED = {"cpu": 30, "cuda": 60}
# Units of what no bar is about but that belongs to the picture: pairs of swaps, sets of levels.
SWAPS, SETS = 3, 2
MOST_FALSE = {"cpu": 5, "cuda": 3}
LEAST_FOUND = {"cpu": 0.90, "cuda": 0.95}
# Fewer injected slowdowns than this say nothing about a share of 90 %.
ENOUGH_FOUND = 20
GEMM_HALF_WIDTH = 0.003
SLOPE_MARGIN = 0.05
# Selfcheck's exit codes when it came to its end: nothing against compare, a finding, no verdict at all.
ENDED = (0, 1, 4)
# Less is not enough for one comparison.
LEAST_SECONDS = 20.0


def run(context: Context) -> Outcome:
    out = context.folder / "selfcheck"
    wanted = _wanted(context)
    notes: list[str] = []
    code, said = 0, b""
    # Those that lack as many are run in turns, so that one that is cut short has its share of each.
    for runs, names in _together(_missing(out, wanted)):
        if context.seconds is not None and context.left() < LEAST_SECONDS:
            break
        command = [
            *(sys.executable, "-m", "trackside", "selfcheck", "--device", context.device, "--out", str(out)),
            *("--runs", str(runs), "--jobs", str(context.jobs), "--json"),
            *(argument for name in names for argument in ("--experiment", name)),
        ]
        if context.budget is not None:
            command += ["--budget", f"{context.budget:g}"]
        if context.seconds is not None:
            command += ["--seconds", f"{context.left():.0f}"]
        ended = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        code, said = ended.returncode, ended.stdout
        if code not in ENDED or _missing(out, {name: wanted[name] for name in names}):
            break
    try:
        record = json.loads((out / "results.json").read_text())
    except FileNotFoundError:
        return Outcome([_trouble(code, said, "no results")], {}, False)
    if record["source_sha256"] != context.identity["source_sha256"]:
        other = f"{out} holds results of other sources; give another --results"
        return Outcome([_trouble(code, said, other)], {}, False)
    notes += record["findings"]
    bars = [] if code in ENDED else [_trouble(code, said, "no reason given")]
    bars += _bars(context.kind, record)
    kept = {key: value for key, value in record.items() if key != "runs"}
    no_time = context.seconds is not None and not record["runs"]
    if no_time:
        notes.append("no time for one comparison")
    elif record["holds"] is None:
        found = f"none in {len(record['runs'])} comparisons"
        bars.append(Bar("selfcheck comes to verdicts", "some", found, False))
    data = kept | {"runs": "selfcheck/results.json"}
    return Outcome(bars, data, not _missing(out, wanted), notes, excused=no_time)


def _trouble(code: int, said: bytes, otherwise: str) -> Bar:
    """A selfcheck that gave no results, or not all: the error that it printed, if it could."""
    try:
        error = json.loads(said)["error"]
        why = f"{error['message']}; {error['remedy']}"
    except (ValueError, KeyError):
        why = otherwise
    found = f"exit code {code}: {one_line(why)}"
    return Bar("selfcheck comes to its end", f"exit code {' or '.join(map(str, ENDED))}", found, False)


def _wanted(context: Context) -> dict[Experiment, int]:
    """Units of each experiment, fixed before the first is run."""
    total = context.runs or TOTAL[context.kind]
    injected = context.runs or INJECTED[context.kind]
    return {"aa": total, "injected": injected, "swap": SWAPS, "linearity": SETS}


def _missing(out: Path, wanted: dict[Experiment, int]) -> dict[Experiment, int]:
    """Units that each experiment still lacks, those that lack none left out."""
    try:
        runs = json.loads((out / "results.json").read_text())["runs"]
    except FileNotFoundError:
        runs = []
    done = {name: len({r["group"] for r in runs if r["experiment"] == name}) for name in wanted}
    return {name: count - done[name] for name, count in wanted.items() if count > done[name]}


def _together(missing: dict[Experiment, int]) -> list[tuple[int, list[Experiment]]]:
    """What to ask `selfcheck --runs` for, and for which experiments: it counts in comparisons of A/A."""
    asked: dict[int, list[Experiment]] = {}
    for name, units in missing.items():
        asked.setdefault(units * AA_PER_UNIT[name], []).append(name)
    return list(asked.items())


def _bars(kind: str, record: dict[str, Any]) -> list[Bar]:
    bars = [
        bar
        for experiment, what in (("aa", "false"), ("injected", "found"))
        if (rate := _pooled(record["rates"], experiment, what)) is not None
        for bar in [_false_bar(kind, rate) if what == "false" else _found_bar(kind, rate)]
    ]
    for line in record["linearity"]:
        if line["workload"] == "all" or len(record["linearity"]) == 1:
            inside = abs(line["slope"] - 1) <= SLOPE_MARGIN
            found = f"{line['slope']:.3f} [{line['low']:.3f}, {line['high']:.3f}], n {line['n']}"
            bars.append(Bar("slope of measured on true slowdown", f"1 ± {SLOPE_MARGIN}", found, inside))
    swap = _pooled(record["rates"], "swap", "reciprocal")
    if swap is not None:
        # One in 20 may miss by chance at the very most, since both intervals have 95 %.
        bars.append(
            Bar(
                "swapped files give the inverse ratio",
                "all but chance",
                f"{swap['k']} of {swap['n']}",
                swap["high"] >= 0.95 and swap["k"] >= 0.8 * swap["n"],
            )
        )
    width = record["half_width"].get("gemm")
    if width is not None:
        bars.append(
            Bar("half-width of the GEMM's interval", "≤ 0.3 %", f"{width:.2%}", width <= GEMM_HALF_WIDTH)
        )
    return bars


def _pooled(rates: list[dict[str, Any]], experiment: str, what: str) -> dict[str, Any] | None:
    mine = [r for r in rates if r["experiment"] == experiment and r["what"] == what]
    return next((r for r in mine if r["workload"] == "all"), mine[0] if mine else None)


def _shown(rate: dict[str, Any]) -> str:
    return f"{rate['k']} of {rate['n']} [{rate['low']:.1%}, {rate['high']:.1%}]"


def _false_bar(kind: str, rate: dict[str, Any]) -> Bar:
    most = MOST_FALSE[kind]
    # More false ones than allowed fail at any n; few of them pass only at the full number.
    passed = False if rate["k"] > most else (True if rate["n"] >= TOTAL[kind] else None)
    wanted = f"at most {most} of {TOTAL[kind]}"
    return Bar("identical code called faster or slower", wanted, _shown(rate), passed)


def _found_bar(kind: str, rate: dict[str, Any]) -> Bar:
    enough = rate["n"] >= (ENOUGH_FOUND if kind == "cpu" else TOTAL[kind])
    share = rate["k"] / rate["n"]
    wanted = f"≥ {LEAST_FOUND[kind]:.0%}" + (" of +5 %" if kind == "cpu" else " of +2 % (pointwise +5 %)")
    return Bar(
        "injected slowdown found", wanted, _shown(rate), share >= LEAST_FOUND[kind] if enough else None
    )
