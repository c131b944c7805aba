"""The parts of a record that a comparison of two commands fills from its measurement and its machine."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trackside.comparison.measure import Measurement
from trackside.comparison.timings import summarise
from trackside.comparison.verdict import Reading, ratios
from trackside.machine.facts import MachineFacts, fingerprint

__all__ = ["environment", "measured_fields"]


def measured_fields(measurement: Measurement | None, reading: Reading | None, delta: float) -> dict[str, Any]:
    """Timings, memory, speedup and statistics; all empty where nothing was measured."""
    if measurement is None or reading is None:
        return {"timings": {}, "memory": {}, "speedup": None, "statistics": {}}
    timings, memory = summarise(measurement, {})
    bounds = ratios(reading.speed)
    return {
        "timings": timings,
        "memory": memory,
        "speedup": bounds
        | {
            "confidence": reading.speed.confidence,
            "metric": "wall",
            "bounded": bounds["ratio"],
            "bounded_low": bounds["low"],
            "bounded_high": bounds["high"],
            "lie_us": 0.0,
        },
        "statistics": {
            "pairs": len(measurement.pairs),
            "quads": reading.quads,
            "quads_kept": reading.kept,
            "calls_per_slot": 1,
            "delta": delta,
            "total": ratios(reading.total),
            "candidate_calls": measurement.calls,
        },
    }


def environment(machine: MachineFacts, folder: Path) -> dict[str, Any]:
    """Where the commands ran."""
    return {
        "fingerprint": fingerprint(machine),
        "device": "cpu",
        "cpus": sorted(os.sched_getaffinity(0)),
        "cpu": machine.cpu.model,
        "gpus": [gpu.name for gpu in machine.gpus],
        "kernel": machine.kernel,
        "software": asdict(machine.software),
        "folder": str(folder),
    }
