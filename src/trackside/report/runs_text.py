"""Runs on a terminal: the list, and any record that has no view of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trackside.records.errors import printable
from trackside.store.runs import RunSummary

__all__ = ["render_facts", "render_list"]

_STATE_STYLES: Final = {
    "failed": "red",
    "running": "cyan",
    "died": "yellow",
    "unreadable": "red",
    "newer": "magenta",
}


def render_list(summaries: Sequence[RunSummary], console: Console) -> None:
    """One row for each run."""
    table = Table(box=None, pad_edge=False)
    # In full on any terminal: an id that is cut cannot be copied.
    table.add_column("run", no_wrap=True, min_width=max(len(summary.id) for summary in summaries))
    table.add_column("verb", no_wrap=True, min_width=max(len(summary.verb) for summary in summaries))
    table.add_column("started (UTC)", no_wrap=True, min_width=len("2026-11-16 10:54"))
    table.add_column("result", overflow="fold")
    for summary in summaries:
        table.add_row(
            summary.id,
            printable(summary.verb),
            summary.started[:16].replace("T", " "),
            Text(_result(summary), style=_STATE_STYLES.get(summary.state, "")),
        )
    console.print(table)


def render_facts(record: Mapping[str, Any], console: Console) -> None:
    """Every top-level field, long ones by their size, so that no record is without a view."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in record.items():
        table.add_row(Text(printable(name)), Text(printable(_fact(value))))
    console.print(table)


def _result(summary: RunSummary) -> str:
    """What came out, of what was compared, and why there is no more."""
    parts: list[str] = [] if summary.state == "done" and summary.verdict else [summary.state]
    if summary.verdict is not None:
        parts.append(summary.verdict + ("" if summary.certified in (None, True) else ", not certified"))
    compared = f"{summary.about}: " if summary.about else ""
    reason = f" ({summary.reason})" if summary.reason else ""
    return printable(compared + ", ".join(parts) + reason)


def _fact(value: object) -> str:
    if isinstance(value, dict):
        plain = all(not isinstance(inner, dict | list) for inner in value.values())
        if plain and len(value) <= 8:
            return ", ".join(f"{name} {_fact(inner)}" for name, inner in value.items())
        return f"{len(value)} fields: {', '.join(value)}"
    if isinstance(value, list):
        if len(value) <= 5 and all(isinstance(inner, str | int | float) for inner in value):
            return ", ".join(_fact(inner) for inner in value) or "none"
        return f"{len(value)} entries (all of them with --json)"
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None:
        return "-"
    return str(value)
