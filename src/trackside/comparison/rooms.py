"""How much room outputs get in a slot of shared memory, and how far a candidate's may be spread in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from trackside.workload.memory import ALIGN, align

__all__ = ["room_for", "room_of", "widest_room"]

# Up to this many bytes, slots have room for four times what the baseline's outputs span; beyond it for twice.
_SMALL_OUTPUT = 64 << 20
# Beyond this, memory is what runs out: little more than is needed.
_HUGE_OUTPUT = 1 << 30
# How far a candidate's outputs may be spread: views of one large result span all of it.
_WIDEST, _WIDE_BYTES = 16, 64 << 20


def room_for(need: int) -> int:
    """Room in a slot for outputs that span so many bytes: for a candidate's padding too, and longer ones."""
    if need > _HUGE_OUTPUT:
        return need + need // 8
    return (4 if need <= _SMALL_OUTPUT else 2) * need + (1 << 16)


def room_of(leaves: Sequence[dict[str, Any]]) -> int:
    """What the outputs of one call span, each on its own boundary."""
    return sum(align(leaf["span"], ALIGN) for leaf in leaves if leaf["kind"] == "tensor")


def widest_room(baseline: Iterable[Sequence[dict[str, Any]]]) -> int:
    """The most that a candidate's outputs may span where the baseline's calls gave these."""
    return max(_WIDE_BYTES, _WIDEST * max(map(room_of, baseline)))
