"""A check record on a terminal: one line per workload, the reasons of what does not hold, what to do next."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trackside.records.errors import printable

__all__ = ["change_text", "counts_text", "render"]

_MARKS = {
    "holds": ("green", "✓"),
    "accepted": ("green", "✓"),
    "failed": ("red", "✗"),
    "error": ("red", "✗"),
    "inconclusive": ("magenta", "?"),
    "not-comparable": ("yellow", "–"),
    "not-run": ("dim", "…"),
}
_QUIET = ("holds", "accepted")


def render(record: dict[str, Any], console: Console) -> None:
    """Print a check record."""
    console.print()
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for item in record["items"]:
        colour, mark = _MARKS[item["status"]]
        table.add_row(
            Text(f"{mark} {printable(item['name'])}", style=colour),
            Text(item["status"], style=colour),
            Text(printable(change_text(item))),
        )
        told = item["reasons"] if item["status"] not in _QUIET or item["mode"] == "accepted" else []
        for reason in told:
            table.add_row("", "", Text(printable(reason), style="dim"))
    console.print(table)
    console.print(Text(f"  {counts_text(record)}", style="bold"))
    console.print(
        Text.assemble(("  run  ", "bold"), f"{record['run_id']}, {record['seconds']:.0f} s"), soft_wrap=True
    )
    console.print(Text.assemble(("  next: ", "bold"), _next(record)), soft_wrap=True)
    console.print()


def change_text(item: dict[str, Any]) -> str:
    """What was measured of an item, in one line; empty where nothing was."""
    change, verdict = item["change"], item["verdict"]
    if change is None:
        return verdict or ""
    interval = f"[{change['low']:.3f}, {change['high']:.3f}]"
    if item["mode"] == "baseline":
        return f"{verdict}, {change['ratio']:.3f}× {interval}; claimed {item['claim']}"
    limit = f"at most {1 + item['delta']:.3g} of it may be" if item["delta"] is not None else ""
    shape = f" at shape {change['shape']}" if change["shape"] is not None else ""
    return f"{verdict}: takes {change['ratio']:.3f} {interval} of what was accepted{shape}; {limit}"


def counts_text(record: dict[str, Any]) -> str:
    """How many of each status: `2 hold, 1 failed`."""
    words = {"holds": "hold", "error": "with an error"}
    counts = record["counts"].items()
    return ", ".join(f"{count} {words.get(status, status)}" for status, count in counts) or "nothing to do"


def _next(record: dict[str, Any]) -> str:
    for item in record["items"]:
        if item["status"] == record["verdict"] and item["run_id"] and item["status"] not in _QUIET:
            return f"trackside runs show {item['run_id']}"
    if record["verdict"] == "accepted":
        return f"git add {printable(record['accepted'] or '')}"
    if record["verdict"] == "not-comparable" and any(i["mode"] == "accepted" for i in record["items"]):
        return "trackside check --accept"
    if record["verdict"] == "holds":
        return "trackside watch"
    return f"trackside runs show {record['run_id']}"
