"""Two profiles on a terminal, side by side: what became faster, what slower."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trackside.records.durations import duration
from trackside.records.errors import printable
from trackside.report.kernel_names import short_kernel
from trackside.report.sizes import told_bytes

__all__ = ["render"]

_MOST = 6
# Changes that are less than this share of the earlier step are noise to a reader.
_LEAST_SHARE = 0.005
_PARTS = (
    ("lines", "line"),
    ("buckets", "outside of lines"),
    ("modules", "module"),
    ("kernels", "kernel or operator"),
)


def render(record: dict[str, Any], console: Console) -> None:
    """Print a diff. Names come from programs and never steer the terminal."""
    console.print(Text(f"\n  {printable(record['verdict'])}", style="bold"), soft_wrap=True)
    for doubt in record["doubts"]:
        console.print(Text(f"  ! {printable(doubt)}", style="yellow"), soft_wrap=True)
    step = record["step"]
    least = _LEAST_SHARE * step["before_ms"] if step else 0.0
    if record["breakdown"]:
        _table("a step", record["breakdown"], console, bold=step)
    for key, title in _PARTS:
        shown = [one for one in record[key] if abs(one["delta_ms"]) >= least]
        if shown:
            _table(title, shown[:_MOST], console, left_out=len(record[key]) - len(shown[:_MOST]))
    _memory(record.get("memory", ()), console)
    console.print()
    for key, word in (("fixed", "no longer found"), ("new", "new")):
        for finding in record[key]:
            place = f"  {_short(finding['file'])}:{finding['line']}" if finding["file"] else ""
            console.print(Text(f"  {word}: {printable(finding['title'])}{printable(place)}"), soft_wrap=True)
    console.print("  this shows where time went; whether a change is faster, trackside compare proves")


def _table(
    title: str,
    changes: Sequence[dict[str, Any]],
    console: Console,
    bold: dict[str, Any] | None = None,
    left_out: int = 0,
) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows = [_row(one) for one in changes]
    if bold is not None:
        rows.append([Text(cell.plain, style="bold") for cell in _row(bold)])
    names = ("before", "after", "change")
    widths = [max(len(name), *(len(row[place].plain) for row in rows)) for place, name in enumerate(names, 1)]
    # Figures stand in full on any terminal; names give way.
    room = max(20, console.width - sum(widths) - 2 * len(names) - 2)
    table.add_column(f"  {title}", overflow="ellipsis", no_wrap=True, max_width=room)
    for name, width in zip(names, widths, strict=True):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    for row in rows:
        table.add_row(*row)
    console.print()
    console.print(table)
    if left_out:
        console.print(f"  and {left_out} smaller ones (--json has all)", style="dim")


def _memory(changes: Sequence[dict[str, Any]], console: Console) -> None:
    if not changes:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("  peak memory", overflow="ellipsis", no_wrap=True)
    for name in ("before", "after", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    for change in changes:
        delta = change["delta_bytes"]
        style = "green" if (delta or 0) < 0 else "red" if delta else "dim"
        table.add_row(
            Text(f"  {printable(change['device'])}"),
            *(
                Text("–" if size is None else told_bytes(size))
                for size in (change["before_bytes"], change["after_bytes"])
            ),
            Text("" if delta is None else ("+" if delta > 0 else "") + told_bytes(delta), style=style),
        )
    console.print()
    console.print(table)


def _row(change: dict[str, Any]) -> list[Text]:
    delta = change["delta_ms"]
    style = "green" if delta < 0 else "red" if delta > 0 else "dim"
    return [
        Text(f"  {_label(change)}"),
        Text(_ms(change["before_ms"])),
        Text(_ms(change["after_ms"])),
        Text(duration(1e6 * delta, signed=True), style=style),
    ]


def _label(change: dict[str, Any]) -> str:
    if "text" not in change:
        return printable(short_kernel(change["name"]))
    file, _, line = change["name"].rpartition(":")
    moved = change["before_line"] if change["before_line"] not in (None, change["after_line"]) else None
    was = f" (was {moved})" if moved and change["after_line"] else ""
    return printable(f"{_short(file)}:{line}{was}  {change['text'].strip()}")


def _short(file: str) -> str:
    return PurePath(file).name


def _ms(value: float | None) -> str:
    return "–" if value is None else duration(1e6 * value)
