"""Memory of the steps with lines, as rows of the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trackside.profiling.captured import Captured
from trackside.profiling.line_stacks import Line
from trackside.profiling.memory_use import MemoryUse
from trackside.records.profile import HeldMemory, LineMemory, Memory

__all__ = ["PROCESS", "memory_rows"]

PROCESS = "process"
"""The row of all that the program's process has, whatever for."""
_MOST_LINES = 500


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
    lines: dict[Line, LineMemory] = {}
    held = []
    for owner, size in use.owners.items():
        if owner.line is None:
            held.append(HeldMemory(what=owner.what, bytes=size))
            continue
        file, number = owner.line
        row = lines.setdefault(
            owner.line,
            LineMemory(
                file=shown(file),
                line=number,
                text=captured.sources.text(file, number),
                bytes=0,
                backward_bytes=0,
            ),
        )
        row.bytes += size
        row.backward_bytes += size if owner.backward else 0
    return Memory(
        device=use.device,
        peak_bytes=use.peak_bytes,
        peak_ms=use.peak_ms,
        reserved_bytes=use.reserved_bytes,
        total_bytes=use.total_bytes,
        series=use.series,
        step_ends_ms=use.step_ends_ms,
        growth_bytes=use.growth_bytes,
        new_segments=use.reservations.segments,
        new_segment_bytes=use.reservations.bytes,
        lines=sorted(lines.values(), key=lambda row: -row.bytes)[:_MOST_LINES],
        held=held,
    )
