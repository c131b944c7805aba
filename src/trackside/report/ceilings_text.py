"""Measured speeds on a terminal: a table for each place, then what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

__all__ = ["render", "speed"]

# Figures that move by more than this say little about the hardware.
_UNSTEADY = 0.20
_MOST_DISTURBANCES = 3
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def render(record: Mapping[str, Any], console: Console) -> None:
    """Print a ceilings record."""
    for place in record["places"]:
        rows = [row for row in record["ceilings"] if row["place"] == place]
        skipped = [row for row in record["skipped"] if row["place"] == place]
        if not rows and not skipped:
            continue
        console.print(Text.assemble("\n  ", (place, "bold")))
        table = Table(box=None, pad_edge=False)
        table.add_column("")
        table.add_column("median", justify="right")
        table.add_column("spread", justify="right")
        marked = any(_unsteady(row) for row in rows)
        if marked:
            table.add_column("")
        table.add_column("n", justify="right")
        clocked = any(row["sm_mhz"] for row in rows)
        if clocked:
            table.add_column("clock", justify="right")
            table.add_column("power", justify="right")
        for row in rows:
            cells = [row["title"], speed(row["value"], row["unit"]), f"{row['spread']:.1%}"]
            cells += ["!" if _unsteady(row) else ""] if marked else []
            cells.append(str(row["n"]))
            if clocked:
                cells += [_with_unit(row["sm_mhz"], "MHz"), _with_unit(row["power_w"], "W")]
            table.add_row(*cells)
        console.print(Padding(table, (0, 0, 0, 2)))
        for row in skipped:
            console.print(Text(f"  - {row['title']}: {row['why']}", style="dim"))
    _remarks(record, console)
    for sentence in record["sentences"]:
        console.print(Padding(Text(sentence), (1, 0, 0, 2)))
    when = "kept from" if record["cached"] else "measured"
    console.print(
        Text(
            f"\n  {when} {record['measured_at']}, {record['seconds']:.0f} s (methods with --json)",
            style="dim",
        )
    )
    again = "trackside ceilings --fresh" if record["cached"] or record.get("error") else "trackside doctor"
    console.print(Text.assemble(("  next: ", "bold"), again))
    console.print()


def _unsteady(row: Mapping[str, Any]) -> bool:
    return bool(row["spread"] > _UNSTEADY)


def _remarks(record: Mapping[str, Any], console: Console) -> None:
    """How far the figures can be trusted; records of earlier releases have fewer fields."""
    remarks = []
    if any(_unsteady(row) for row in record["ceilings"]):
        remarks.append("! unsteady: the machine was busy, or shares its hardware; measure again with --fresh")
    if disturbed := record.get("disturbed"):
        more = len(disturbed) - _MOST_DISTURBANCES
        shown = [*disturbed[:_MOST_DISTURBANCES], *([f"and {more} more (--json)"] if more > 0 else [])]
        remarks.append(f"disturbed: {'; '.join(shown)}")
    if error := record.get("error"):
        remarks.append(f"failed: {error}")
    for number, remark in enumerate(remarks):
        console.print(Padding(Text(remark), (int(number == 0), 0, 0, 2)))


def speed(value: float, unit: str) -> str:
    """A figure as people say it: 4.26 TB/s, 12.3 µs."""
    if unit in ("µs", "ns"):
        return f"{value:.3g} {unit}"
    for size, prefix in _PREFIXES:
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}" if unit != "1/s" else f"{value / size:.3g}{prefix}/s"
    return f"{value:.3g} {unit}"


def _with_unit(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.0f} {unit}"
