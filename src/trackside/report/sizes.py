"""Bytes as people say them, in the units of data sheets."""

from __future__ import annotations

__all__ = ["told_bytes"]


def told_bytes(count: float) -> str:
    """Three digits and a unit: 53.2 MB. What is below 0 keeps its sign."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        # What three digits would round up to 1000 is 1 of the next.
        if abs(count) >= 0.9995 * size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"
