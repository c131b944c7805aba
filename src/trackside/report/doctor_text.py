"""What the doctor found on a terminal: the count, then what is wrong, worst first, each with its fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from trackside.handbook.items import Item

__all__ = ["explain_item", "render"]

_MARKS = {
    "fail": ("red", "✗"),
    "warn": ("yellow", "!"),
    "unknown": ("magenta", "?"),
    "pass": ("green", "✓"),
    "not_applicable": ("dim", "-"),
}
_WORDS = {
    "fail": "wrong",
    "warn": "worth a look",
    "unknown": "unknown",
    "pass": "as it should be",
    "not_applicable": "not for this machine",
}
_MOST_PLACES = 4


def render(record: Mapping[str, Any], console: Console, everything: bool = False) -> None:
    """Print a doctor record; `everything` also shows what passed or does not apply."""
    console.print()
    console.print(_headline(record["counts"]))
    shown = ("fail", "warn", "unknown", *(("pass", "not_applicable") if everything else ()))
    for finding in record["checks"]:
        if finding["status"] in ("fail", "warn"):
            _print_trouble(finding, console)
    for status in shown[2:]:
        found = [finding for finding in record["checks"] if finding["status"] == status]
        if found:
            console.print(Text.assemble("\n  ", (_WORDS[status], f"bold {_MARKS[status][0]}")))
        for finding in found:
            _print_line(finding, console)
    if record["relevant"]:
        console.print(Text.assemble("\n  ", ("what matters most for this script", "bold")))
        for place, item in enumerate(record["relevant"], 1):
            _print_heading(f"{place}.", item["item"], item["title"], "bold", console)
            console.print(Padding(Text(item["because"], style="dim"), (0, 0, 0, 6)))
    console.print(Text.assemble(("\n  next: ", "bold"), _next(record)))
    console.print()


def explain_item(record: Mapping[str, Any], item: Item, console: Console) -> None:
    """Print one item in full, with what was found here."""
    for finding in record["checks"]:
        console.print()
        _print_trouble(finding, console)
    rows = (("why", item.why), ("when", item.when), ("check", item.check), ("fix", item.fix))
    for name, text in (*rows, ("effect", item.effect), ("source", f"{item.source} (seen {item.seen})")):
        console.print(Text.assemble("\n  ", (name, "bold")))
        console.print(Padding(Text(text), (0, 0, 0, 4)))
    if item.related:
        console.print(Text.assemble("\n  ", ("related", "bold"), f"  {', '.join(item.related)}"))
    console.print()


def _headline(counts: Mapping[str, int]) -> Text:
    worst = next((status for status in ("fail", "warn") if counts[status]), None)
    line = Text("  ")
    if worst is None:
        line.append(" NOTHING WRONG ", style="bold green reverse")
    else:
        colour = _MARKS[worst][0]
        line.append(f" {counts[worst]} {_WORDS[worst].upper()} ", style=f"bold {colour} reverse")
    rest = [f"{counts[s]} {_WORDS[s]}" for s in _MARKS if s != worst and counts[s]]
    line.append(f"  {', '.join(rest)}; {sum(counts.values())} probes")
    return line


def _print_trouble(finding: Mapping[str, Any], console: Console) -> None:
    colour, mark = _MARKS[finding["status"]]
    console.print()
    _print_heading(mark, finding["id"], finding["title"], f"bold {colour}", console)
    rows = [("found", finding["found"]), ("wanted", finding["wanted"])]
    places = finding["places"]
    if places:
        more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
        rows.append(("where", ", ".join(places[:_MOST_PLACES]) + more))
    rows.append(("why", _first_sentence(finding["why"])))
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="dim", width=6)
    grid.add_column(overflow="fold")
    for name, text in rows:
        if text:
            grid.add_row(name, Text(text))
    console.print(Padding(grid, (0, 0, 0, 6)))
    if finding["status"] in ("fail", "warn"):
        for number, change in enumerate(finding["fix"]):
            # On one line however long: it is there to be copied.
            lead = "fix" if not number else ""
            console.print(Text.assemble((f"      {lead:7}", "dim"), (change, "cyan")), soft_wrap=True)


def _print_heading(lead: str, item: str, title: str, style: str, console: Console) -> None:
    """Its id and title, further lines under the first."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=max(len(lead), 1), justify="right")
    grid.add_column()
    grid.add_row(Text(lead, style=style), Text.assemble((item, style), f"  {title}"))
    console.print(Padding(grid, (0, 0, 0, 2)))


def _print_line(finding: Mapping[str, Any], console: Console) -> None:
    colour, mark = _MARKS[finding["status"]]
    console.print(Text.assemble(f"    {mark} ", (finding["id"], colour), f"  {finding['found']}"))


def _first_sentence(text: str) -> str:
    head, stop, _ = text.partition(". ")
    return head + "." if stop else text


def _next(record: Mapping[str, Any]) -> str:
    troubles = [f["id"] for f in record["checks"] if f["status"] in ("fail", "warn")]
    if troubles:
        return f"trackside doctor --explain {troubles[0]}"
    return "trackside doctor SCRIPT" if record["script"] is None else "trackside doctor --all"
