"""Event times of compare's cold path against ncu's own duration of the same kernels.

Twice: with `--cache-control all`, where ncu empties the caches before each kernel, and with `none`, where
they are as compare leaves them (flushed, then the inputs copied into place, so that small inputs lie in L2).
A copy is not among the workloads: ncu sees kernels, not memcpy.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.context import ROOT, Bar, Compared, Context, Outcome, compare, one_line, workload_pair
from trackside.machine.surroundings import PROFILER_PLACES, find_profiler

__all__ = ["from_compare", "judge", "parse", "run"]

WORKLOADS = ("gemm", "softmax", "pointwise")
COUNT = 20
DURATION, CLOCK = "gpu__time_duration.sum", "smsp__cycles_elapsed.avg.per_second"
CLOCK_MARGIN = 0.01
# The longest that one ncu run may take.
NCU_SECONDS = 90.0


def run(context: Context) -> Outcome:
    tool = find_profiler("ncu")
    if tool is None:
        return Outcome([], {}, False, [f"found no ncu {PROFILER_PLACES}"], excused=True)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as store:
        for workload in WORKLOADS:
            if context.left() < 60:
                notes.append(f"{workload}: no time left")
                continue
            with workload_pair(workload, 0.0) as (baseline, candidate):
                found = compare(context, baseline, candidate, Path(store), "--quick")
                if found.out_of_time:
                    notes.append(f"{workload}: no time left")
                    continue
                row = {"workload": workload, **from_compare(found)}
                row |= _in_process(baseline)
                for cache in ("all", "none"):
                    row[f"ncu_{cache}"] = _profile(tool, baseline, cache, context.left())
            rows.append(row)
            context.say(f"  {json.dumps(row)}")
    bars = [judge(row, cache) for row in rows for cache in ("all", "none")]
    complete = len(rows) == len(WORKLOADS) and all("us" in row["ncu_all"] for row in rows)
    return Outcome(bars, {"rows": rows, "count": COUNT}, complete, notes, excused=not complete)


def from_compare(found: Compared) -> dict[str, Any]:
    """The baseline's cold event time, and the SM clock while pairs were timed."""
    if found.document is None:
        return {"compare_us": None, "error": found.error}
    timing = found.document["timings"].get("baseline", {}).get("device", {})
    clock = _clock_in_pairs(found)
    return {"compare_us": timing.get("p50_us"), "compare_n": timing.get("n"), "compare_mhz": clock}


def _clock_in_pairs(found: Compared) -> float | None:
    """Median SM clock from the first pair on; before that the GPU is mostly idle."""
    assert found.document is not None
    path = found.store / "runs" / found.document["run_id"] / "telemetry.npz"
    marks = {mark["label"]: mark["at_s"] for mark in found.document["telemetry"].get("marks", [])}
    try:
        with np.load(path) as samples:
            column = list(samples["names"]).index("gpu.sm_mhz")
            seconds = (samples["times_ns"] - samples["times_ns"][0]) / 1e9
            clocks = samples["values"][seconds >= marks.get("pairs", 0.0), column]
    except (OSError, ValueError, KeyError):
        return None
    clocks = clocks[np.isfinite(clocks)]
    return float(np.median(clocks)) if clocks.size else None


def _in_process(workload: Path) -> dict[str, Any]:
    """The same path in one process without ncu; the empty pair of events is what they cost themselves."""
    command = [sys.executable, "-m", "benchmarks.ncu_target", str(workload), "60", "events"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=NCU_SECONDS, check=True
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.SubprocessError, ValueError) as error:
        return {"events_us": None, "empty_us": None, "events_error": str(error)[:300]}
    return found


def _profile(tool: str, workload: Path, cache: str, left: float) -> dict[str, Any]:
    command = [
        *(tool, "--clock-control", "none", "--cache-control", cache, "--metrics", f"{DURATION},{CLOCK}"),
        *("--nvtx", "--nvtx-include", "timed/", "--csv", "--page", "raw", "--print-units", "base"),
        *(sys.executable, "-m", "benchmarks.ncu_target", str(workload), str(COUNT), "nvtx"),
    ]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=max(5.0, min(NCU_SECONDS, left)),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": "ncu ran out of time", "out_of_time": True}
    try:
        return parse(done.stdout, COUNT)
    except ValueError as error:
        return {"error": f"{error}; ncu said: {(done.stdout + done.stderr)[-600:]}"}


def parse(text: str, count: int) -> dict[str, Any]:
    """Median duration of one call and the clock it ran at, from ncu's CSV of one row per kernel.

    Raises:
        ValueError: the rows are not a whole number of kernels per call.
    """
    lines = text.splitlines()
    header = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if header is None:
        raise ValueError("no table in ncu's output")
    # The row of units under the header has no ID.
    rows = [row for row in csv.DictReader(io.StringIO("\n".join(lines[header:]))) if row["ID"].strip()]
    if not rows or len(rows) % count:
        raise ValueError(f"found {len(rows)} kernels in {count} calls")
    each = len(rows) // count
    durations = [_number(row[DURATION]) for row in rows]
    calls = [sum(durations[i : i + each]) for i in range(0, len(durations), each)]
    return {
        "us": median(calls) / 1e3,
        "least_us": min(calls) / 1e3,
        "most_us": max(calls) / 1e3,
        "mhz": median(_number(row[CLOCK]) for row in rows) / 1e6,
        "kernels": sorted({row["Kernel Name"][:80] for row in rows}),
    }


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def judge(row: dict[str, Any], cache: str) -> Bar:
    """Whether the two agree; open where the clocks differed, since then the kernels ran at other speeds."""
    ncu, events = row[f"ncu_{cache}"], row.get("compare_us")
    how = "emptied caches" if cache == "all" else "caches as in compare"
    name = f"{row['workload']}: events against ncu, {how}"
    if events is None:
        why = one_line(row.get("error") or "no timing in its record")
        return Bar(name, "two times", f"none from compare: {why}", False)
    if "us" not in ncu:
        passed = None if ncu.get("out_of_time") else False
        return Bar(name, "two times", f"none from ncu: {one_line(ncu['error'])}", passed)
    margin = max(1.0, 0.02 * ncu["us"])
    off = events - ncu["us"]
    clocks = (row.get("compare_mhz"), ncu["mhz"])
    same_clock = clocks[0] is not None and abs(clocks[0] / clocks[1] - 1) <= CLOCK_MARGIN
    agrees = abs(off) <= margin
    less_empty = "" if row.get("empty_us") is None else f", {off - row['empty_us']:+.2f} less an empty pair"
    found = f"{events:.2f} µs against {ncu['us']:.2f} µs ({off:+.2f} µs{less_empty}); {_shown(clocks)} MHz"
    wanted = f"within {margin:.2f} µs, clocks within 1 %"
    return Bar(name, wanted, found, agrees if same_clock else None)


def _shown(clocks: Sequence[float | None]) -> str:
    return " and ".join("?" if clock is None else f"{clock:.0f}" for clock in clocks)
