"""Memory of the steps with lines, as rows of the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trackside.profiling.captured import Captured
from trackside.profiling.line_stacks import Line
from trackside.profiling.memory_use import MemoryUse, Owner
from trackside.records.profile import HeldMemory, LineMemory, Memory

__all__ = ["PROCESS", "memory_rows"]

PROCESS = "process"
"""The row of all that the program's process has, whatever for."""
_MOST_LINES, _MOST_GROWING = 500, 5


def memory_rows(
    captured: Captured, shown: Callable[[str], str], environment: Mapping[str, Any]
) -> list[Memory]:
    """Devices, then the process as a whole.

    Args:
        captured: with its memory.
        shown: a file's name as it is shown.
        environment: the record's, which says how much memory the machine has.
    """
    total = environment.get("memory_bytes")
    machine = total if isinstance(total, int) else None
    rows = [_row(one, captured, shown) for one in captured.memory]
    if captured.peak_resident is not None:
        rows.append(
            Memory(
                device=PROCESS,
                peak_bytes=captured.peak_resident,
                reserved_bytes=None,
                total_bytes=machine,
                series=[],
            )
        )
    return rows


def _row(use: MemoryUse, captured: Captured, shown: Callable[[str], str]) -> Memory:
    return Memory(
        device=use.device,
        peak_bytes=use.peak_bytes,
        peak_ms=use.peak_ms,
        reserved_bytes=use.reserved_bytes,
        total_bytes=use.total_bytes,
        series=use.series,
        step_ends_ms=use.step_ends_ms,
        growth_bytes=use.growth_bytes,
        growth_lines=_lines(use.left, captured, shown)[:_MOST_GROWING],
        new_segments=use.reservations.segments,
        new_segment_bytes=use.reservations.bytes,
        lines=_lines(use.owners, captured, shown)[:_MOST_LINES],
        held=[
            HeldMemory(what=owner.what, bytes=size)
            for owner, size in use.owners.items()
            if owner.line is None
        ],
    )


def _lines(owners: Mapping[Owner, int], captured: Captured, shown: Callable[[str], str]) -> list[LineMemory]:
    """Forward and backward in one row, the largest first."""
    found: dict[Line, LineMemory] = {}
    for owner, size in owners.items():
        if owner.line is None:
            continue
        file, number = owner.line
        text = captured.sources.text(file, number)
        row = found.setdefault(owner.line, LineMemory(file=shown(file), line=number, text=text, bytes=0))
        row.bytes += size
        row.backward_bytes += size if owner.backward else 0
    return sorted(found.values(), key=lambda row: -row.bytes)
