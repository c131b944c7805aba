"""Times and memory of both arms as a record shows them."""

from __future__ import annotations

from typing import Any

from trackside.comparison.arms import BASELINE, CANDIDATE
from trackside.comparison.measure import Measurement
from trackside.stats.spread import iqr_rel, quantile

__all__ = ["summarise"]


def summarise(measurement: Measurement, alone: dict[str, float]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Per arm and series: n, p50, p99, spread; build time with its break-even; peak memory."""
    timings: dict[str, Any] = {}
    for arm in (BASELINE, CANDIDATE):
        rows: dict[str, Any] = {}
        for (name, series), values in measurement.samples.items():
            if name == arm and values:
                rows[series] = {
                    "n": len(values),
                    "p50_us": quantile(values, 0.5) / 1e3,
                    "p99_us": quantile(values, 0.99) / 1e3,
                    "spread": iqr_rel(values),
                }
        if measurement.plan.kind == "cpu" and "device" in rows:
            rows["wall"] = rows["device"]
        rows["build_s"] = alone.get(f"build_{arm}")
        timings[arm] = rows
    extra = (alone.get("build_candidate") or 0) - (alone.get("build_baseline") or 0)
    base, cand = timings[BASELINE].get("device"), timings[CANDIDATE].get("device")
    saved = (base["p50_us"] - cand["p50_us"]) / 1e6 if base and cand else 0.0
    timings["break_even_calls"] = round(extra / saved) if extra > 0 and saved > 0 else None
    memory = {
        arm: {
            kind: max((p.peaks[arm][kind] or 0 for p in measurement.pairs if arm in p.peaks), default=0)
            or None
            for kind in ("host", "device")
        }
        for arm in (BASELINE, CANDIDATE)
    }
    return timings, memory
