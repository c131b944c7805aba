"""Numbers as findings say them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["count", "many", "percent", "shape_text"]


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.1f} %"


def count(number: float) -> str:
    """Calls in a step: whole where they are, but for steps at the edges that have a call more or less."""
    return f"{number:.0f}" if number >= 10 else f"{number:.1f}".removesuffix(".0")


def many(number: float, one: str, more: str | None = None) -> str:
    """`1 kernel`, `7 kernels`, `2.5 copies`."""
    told = count(number)
    return f"{told} {one if told == '1' else more or f'{one}s'}"


def shape_text(shape: Sequence[int]) -> str:
    return "×".join(str(size) for size in shape) if shape else "one element"
