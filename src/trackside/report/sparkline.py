"""A series as one line of blocks, and the few that say how quiet a machine was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["sparkline", "telemetry_rows"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH = 24


def sparkline(points: Sequence[float], low: float, high: float, width: int = _WIDTH) -> str:
    """Points between `low` and `high` as blocks; of more than fit, means of equal stretches."""
    if not points or width < 1:
        return ""
    count = min(width, len(points))
    stretches = [points[i * len(points) // count : (i + 1) * len(points) // count] for i in range(count)]
    means = [sum(part) / len(part) for part in stretches]
    span = high - low
    # What never changed is drawn in the middle: at the bottom it would look like nothing.
    steps = [
        round((min(max(mean, low), high) - low) / span * (len(_BLOCKS) - 1)) if span > 0 else 3
        for mean in means
    ]
    return "".join(_BLOCKS[step] for step in steps)


def telemetry_rows(telemetry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Clock and power of a GPU, or what was stolen from a CPU, as a row's name and text each."""
    series = telemetry.get("series", {})
    for column, name, unit in (("gpu.sm_mhz", "GPU clock", "MHz"), ("gpu.power_w", "GPU power", "W")):
        row = series.get(column)
        if row and row.get("points"):
            drawn = sparkline(row["points"], 0.0, max(row["max"], 1.0))
            yield name, f"{drawn} {row['median']:,.0f} {unit} ({row['min']:,.0f} to {row['max']:,.0f})"
    stolen = series.get("cpu.steal")
    if stolen and stolen.get("points") and "gpu.sm_mhz" not in series:
        drawn = sparkline(stolen["points"], 0.0, max(stolen["max"], 0.05))
        yield (
            "time stolen",
            f"{drawn} {stolen['mean']:.1%} on average, {stolen['max']:.0%} at the worst moment",
        )
