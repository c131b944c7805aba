"""Numbers as findings say them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["count", "duration", "percent", "shape_text"]


def duration(ns: float) -> str:
    """`830 ns`, `4.2 µs`, `3.1 ms`."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.1f} %"


def count(number: float) -> str:
    """Calls in a step: whole where they are."""
    return f"{number:.0f}" if number >= 10 or number == round(number) else f"{number:.1f}"


def shape_text(shape: Sequence[int]) -> str:
    return "×".join(str(size) for size in shape) if shape else "one element"
