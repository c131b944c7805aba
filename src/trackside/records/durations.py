"""Durations as people read them, the same on every screen."""

from __future__ import annotations

__all__ = ["duration"]

_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))


def duration(ns: float, signed: bool = False) -> str:
    """Three digits, and the unit that suits: `830 ns`, `4.2 µs`, `31.4 ms`, `1200 s`.

    Args:
        ns: nanoseconds, as clocks and traces have them.
        signed: a plus stands before what is not negative, for changes.
    """
    if not ns:
        return "0 ms"
    sign = "-" if ns < 0 else "+" if signed else ""
    # Rounded before the unit is chosen: 999.9 µs are 1 ms, and not 1000 µs.
    rounded = float(f"{abs(ns):.3g}")
    unit, size = next((one for one in _UNITS if rounded >= one[1]), _UNITS[-1])
    value = abs(ns) / size
    return f"{sign}{value:.0f} {unit}" if value >= 99.95 or unit == "ns" else f"{sign}{value:.3g} {unit}"
