"""Physics: the least time for the necessary bytes and the declared work at this machine's ceilings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trackside.comparison.arms import BASELINE, CANDIDATE
from trackside.comparison.bench import Bench
from trackside.comparison.checks import Ledger
from trackside.comparison.measure import Measurement
from trackside.comparison.study import Study
from trackside.machine.ceilings import floor_ceilings
from trackside.machine.facts import MachineFacts
from trackside.records.errors import TracksideError
from trackside.stats.spread import quantile

__all__ = ["judge", "prepare"]

# Ceilings are the best of n, yet may stem from a busy machine: only well below the floor is impossible.
_MARGIN = 0.7


def prepare(
    bench: Bench, study: Study, cache: Path, cpus: Sequence[int], machine: MachineFacts
) -> dict[str, Any] | None:
    """The floor for this task, or None where no ceiling could be measured."""
    try:
        ceilings = floor_ceilings(bench.device, cache, cpus=list(cpus), machine=machine)
    except TracksideError as error:
        bench.ledger.unknown("above-floor", f"no measured ceilings: {error.message}")
        return None
    needed: dict[str, Any] = {"leaves": [], "bytes": 0}
    probe = bench.draw()
    assert probe is not None
    if not study.random:
        needed = bench.ask("necessity", set=probe, seed=bench.seed())
    work = bench.ask("work", set=probe)
    bench.ask("forget", sets=[probe], calls=[])
    moved = max(study.least_output_bytes + needed["bytes"], round(work["bytes"]))
    # What fits into the cache may have been there, or stay: only the rest must come from memory or go there.
    cached = min(moved, ceilings.cache_bytes)
    seconds = cached / max(ceilings.cache_read, ceilings.cache_write)
    seconds += (moved - cached) / max(ceilings.dram_read, ceilings.dram_write)
    speed = moved / seconds if seconds else 0.0
    arithmetic = _arithmetic(bench, work["flops"])
    return {
        "seconds": max(seconds, arithmetic["seconds"]),
        "bound": "arithmetic" if arithmetic["seconds"] > seconds else "bytes",
        **{name: value for name, value in arithmetic.items() if name != "seconds"},
        "bytes": moved,
        "output_bytes": study.least_output_bytes,
        "necessary_input_bytes": needed["bytes"],
        "bytes_per_s": speed,
        "ceiling": ("cache" if cached == moved else "memory") + f", {ceilings.method}",
        "measured_at": ceilings.measured_at,
        "n": ceilings.n,
        "spread": ceilings.spread,
    }


def _arithmetic(bench: Bench, flops: float) -> dict[str, Any]:
    """The least time for the FLOPs that `work` declares, at the fastest product of the baseline's worker."""
    if not flops:
        return {"seconds": 0.0}
    best = bench.tell(bench.arms[BASELINE], "matmul", bench.build_timeout)
    return {
        "seconds": flops / best["flops_per_s"],
        "flops": flops,
        "flops_per_s": best["flops_per_s"],
        "flops_in": best["dtype"],
    }


def judge(floor: dict[str, Any] | None, measurement: Measurement, ledger: Ledger) -> None:
    """Fail a candidate that is faster than its floor; warn where the baseline itself is."""
    times = measurement.samples.get((CANDIDATE, "device"), [])
    if floor is None or not times:
        return
    middle = quantile(times, 0.5) / 1e9
    baseline = quantile(measurement.samples[BASELINE, "device"], 0.5) / 1e9
    floor["candidate_over_floor"] = middle / floor["seconds"] if floor["seconds"] else None
    if baseline < _MARGIN * floor["seconds"]:
        ledger.warned(
            "above-floor",
            f"the baseline itself, at {baseline * 1e6:.2f} µs, is below the {floor['seconds'] * 1e6:.2f} µs "
            f"that {_reason(floor)}: the ceiling was measured on a busy machine, or `work` declares too much",
        )
    elif middle < _MARGIN * floor["seconds"]:
        ledger.failed(
            "above-floor",
            f"{middle * 1e6:.2f} µs is less than the {floor['seconds'] * 1e6:.2f} µs that {_reason(floor)}",
        )
    else:
        ledger.passed(
            "above-floor",
            f"{middle / floor['seconds']:.1f} times the floor of {floor['seconds'] * 1e6:.2f} µs"
            if floor["seconds"]
            else "no bytes to move",
        )


def _reason(floor: dict[str, Any]) -> str:
    if floor["bound"] == "arithmetic":
        return f"{floor['flops']:,.0f} FLOPs need at {floor['flops_per_s'] / 1e12:.3g} TFLOP/s"
    return f"{floor['bytes']:,} bytes need at {floor['bytes_per_s'] / 1e9:.0f} GB/s"
