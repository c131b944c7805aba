"""A check record on a terminal: one line per workload, the reasons of what does not hold, what to do next."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trackside.records.errors import printable

__all__ = ["change_text", "counts_text", "outcome_text", "render"]

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
# Of the space before a reason: below its workload, and the whole width is its own.
_INDENT = 6


def render(record: dict[str, Any], console: Console) -> None:
    """Print a check record."""
    console.print()
    names = max((cell_len(printable(item["name"])) for item in record["items"]), default=0) + 2
    statuses = max((len(item["status"]) for item in record["items"]), default=0)
    for item in record["items"]:
        colour, mark = _MARKS[item["status"]]
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, width=names)
        table.add_column(no_wrap=True, width=statuses)
        table.add_column(overflow="fold")
        found = change_text(item)
        table.add_row(
            Text(f"{mark} {printable(item['name'])}", style=colour),
            Text(item["status"], style=colour),
            Text(printable(found if found != item["status"] else "")),
        )
        console.print(Padding(table, (0, 0, 0, 2)))
        told = item["reasons"] if item["status"] not in _QUIET or item["mode"] == "accepted" else []
        for reason in told:
            console.print(Padding(Text(printable(reason), style="dim"), (0, 0, 0, _INDENT)))
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


def outcome_text(item: dict[str, Any]) -> str:
    """The status and what was measured; what says the same is said once."""
    status, found = item["status"], change_text(item)
    return found if found.startswith(status) else "; ".join(filter(None, (status, found)))


def counts_text(record: dict[str, Any]) -> str:
    """How many of each status: `2 hold, 1 failed`."""
    words = {"error": "with an error"}
    counts = [
        f"{count} {'hold' if status == 'holds' and count > 1 else words.get(status, status)}"
        for status, count in record["counts"].items()
    ]
    return ", ".join(counts) or "nothing to do"


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
