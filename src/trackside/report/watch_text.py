"""The status of a watch on a terminal: one line per workload, newest events below."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from trackside.records.errors import printable

__all__ = ["screen"]

_STYLES = {
    "holds": "green",
    "right": "green",
    "failed": "red",
    "rejected": "bold red",
    "broken": "yellow",
    "error": "red",
    "undecided": "magenta",
    "inconclusive": "magenta",
    "checking": "cyan",
    "timing": "cyan",
}
_SHOWN_EVENTS = 5


def screen(document: dict[str, Any]) -> Table:
    """All of it, as rich's Live wants it."""
    table = Table(box=None, show_header=False, pad_edge=False, expand=True)
    table.add_column(overflow="fold")
    title = f"watching {document['suite']}"
    table.add_row(Text(printable(title), style="bold"))
    if document["error"]:
        table.add_row(Text(f"  {printable(document['error'])}", style="red"))
    for item in document["items"]:
        table.add_row(Text(f"  {printable(item['line'])}", style=_STYLES.get(item["state"], "")))
    for event in document["events"][-_SHOWN_EVENTS:]:
        table.add_row(Text(f"  {event['time'][11:19]} {printable(event['line'])}", style="dim"))
    return table
