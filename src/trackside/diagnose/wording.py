"""Numbers as findings say them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["count", "percent", "shape_text"]


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.1f} %"


def count(number: float) -> str:
    """Calls in a step: whole where they are."""
    return f"{number:.0f}" if number >= 10 or number == round(number) else f"{number:.1f}"


def shape_text(shape: Sequence[int]) -> str:
    return "×".join(str(size) for size in shape) if shape else "one element"
