"""The handbook on a terminal: families, items, hits and documents."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trackside.records.errors import printable

__all__ = ["render"]

_WEIGHTS = {3: "often costs tens of percent", 2: "matters in many cases", 1: "rarely matters"}
_OUTCOME_STYLES = {"added": "green", "replaced": "green", "unchanged": "dim", "refused": "red"}
_STATE_STYLES = {"as added": "", "changed": "yellow", "gone": "red"}

# More lines than fit a terminal say less than their count; what was refused is always named.
_MOST_LINES = 20


def render(document: dict[str, Any], console: Console) -> None:
    """Print what a subcommand of `trackside handbook` found."""
    _VIEWS[document["schema"]](document, console)


def _families(document: dict[str, Any], console: Console) -> None:
    table = _table("family", "items", "what it is about")
    for family in document["families"]:
        table.add_row(family["name"], str(family["items"]), Text(family["title"]))
    console.print(table)
    console.print(f"{document['items']} items in {document['total']} families")
    _next(console, f"trackside handbook list --family {document['families'][0]['name']}")


def _items(document: dict[str, Any], console: Console) -> None:
    console.print(Text.assemble((document["title"], "bold"), f": {document['about']}"))
    console.print()
    table = _table("item", "weight", "what to do")
    for item in document["items"]:
        table.add_row(item["id"], str(item["weight"]), Text(item["title"]))
    console.print(table)
    console.print(f"{document['total']} items; weight 3 {_WEIGHTS[3]}, 1 {_WEIGHTS[1]}")
    _next(console, f"trackside handbook show {document['items'][0]['id']}")


def _item(item: dict[str, Any], console: Console) -> None:
    console.print()
    console.print(Text(item["title"], style="bold"))
    weight = f"weight {item['weight']}: {_WEIGHTS[item['weight']]}"
    console.print(Text.assemble((item["id"], "cyan"), (f"   {weight}", "dim")))
    console.print()
    for label in ("why", "when", "check", "fix"):
        _labelled(console, label, item[label])
    for command in item["do"]:
        # Not wrapped: what is shown here is copied.
        for line in command.splitlines():
            console.print(Text(f"            {line}", style="green"), soft_wrap=True)
    _labelled(console, "effect", item["effect"])
    # Not wrapped either, so that a terminal knows the address for one.
    source = f"{item['source']} (seen {item['seen']})"
    console.print(Text.assemble((f"{'source':<10}", "bold"), source), soft_wrap=True)
    applies = [
        ("for", item["workloads"]),
        ("needs", item["needs"]),
        ("signals", item["signals"]),
    ]
    for label, values in applies:
        if values:
            _labelled(console, label, ", ".join(values))
    for place, other in enumerate(item["related"]):
        _labelled(console, "" if place else "related", f"{other['id']}: {other['title']}")
    after = (
        f"trackside handbook show {item['related'][0]['id']}"
        if item["related"]
        else f"trackside handbook list --family {item['family']}"
    )
    _next(console, after)


def _search(document: dict[str, Any], console: Console) -> None:
    searched = "the checklist"
    if document["documents"]:
        searched += f" and {_counted(document['documents'], 'document')}"
    if not document["total"]:
        asked = " ".join(document["asked"])
        console.print(Text(f"nothing found for {asked} in {searched}"), soft_wrap=True)
        _next(console, "trackside handbook list" if document["documents"] else "trackside handbook add FILE")
        return
    if document["matched"] == "some":
        console.print("no passage has all the words; these have some of them", style="yellow")
    for hit in document["hits"]:
        console.print(_place(hit), soft_wrap=True)
        snippet = Text(printable(hit["snippet"]))
        if len(snippet) == len(hit["snippet"]):
            for start, end in hit["marks"]:
                snippet.stylize("bold", start, end)
        console.print(Padding(snippet, (0, 0, 0, 4)))
    if document["total"] > document["shown"]:
        console.print(f"{document['shown']} of {document['total']} passages; `--limit 0` shows all")
    else:
        console.print(f"{_counted(document['total'], 'passage')} in {searched}")
    first = next((hit["item"] for hit in document["hits"] if hit["item"]), None)
    if first:
        _next(console, f"trackside handbook show {first}")


def _place(hit: dict[str, Any]) -> Text:
    heading = printable(hit["heading"])
    if hit["kind"] == "item":
        return Text.assemble((hit["item"], "cyan"), "  ", (heading, "bold"))
    if hit["kind"] == "pdf":
        return Text.assemble((_shown(hit["file"]), "cyan"), f"  page {hit['page']}")
    place = Text(f"{_shown(hit['file'])}:{hit['line']}", style="cyan")
    return Text.assemble(place, "  ", (heading, "bold")) if heading else place


def _added(document: dict[str, Any], console: Console) -> None:
    fine = [entry for entry in document["documents"] if entry["outcome"] != "refused"]
    for entry in fine[:_MOST_LINES]:
        line = Text.assemble((f"{entry['outcome']:<10}", _OUTCOME_STYLES[entry["outcome"]]))
        console.print(line.append(f"{_shown(entry['path'])}  {_size(entry)}"), soft_wrap=True)
    if len(fine) > _MOST_LINES:
        console.print(f"and {len(fine) - _MOST_LINES} more; `trackside handbook documents` shows all")
    for entry in document["documents"]:
        if entry["outcome"] == "refused":
            line = Text.assemble((f"{'refused':<10}", _OUTCOME_STYLES["refused"]), _shown(entry["path"]))
            console.print(line.append(f": {entry['reason']}"), soft_wrap=True)
            console.print(Text(f"{'':<10}remedy: {entry['remedy']}"), soft_wrap=True)
    counts = ", ".join(f"{document[name]} {name}" for name in _OUTCOME_STYLES if document[name])
    ignored = f"; {_counted(document['ignored'], 'other file')} left out" if document["ignored"] else ""
    console.print(Text(f"{counts}{ignored}; index {_shown(document['index'])}"), soft_wrap=True)
    if fine:
        _next(console, "trackside handbook search WORDS")


def _documents(document: dict[str, Any], console: Console) -> None:
    if not document["total"]:
        console.print(Text(f"no documents in {document['index']}"), soft_wrap=True)
        _next(console, "trackside handbook add FILE")
        return
    table = _table("added (UTC)", "state", "size", "document")
    for entry in document["documents"]:
        added = entry["added"].removesuffix("+00:00").replace("T", " ")
        state = Text(entry["state"], style=_STATE_STYLES[entry["state"]])
        table.add_row(added, state, _size(entry), Text(_shown(entry["path"])))
    console.print(table)
    total = _counted(document["total"], "document")
    console.print(f"{total}, {_counted(document['passages'], 'passage')}")
    states = {entry["state"]: entry["path"] for entry in reversed(document["documents"])}
    if "changed" in states:
        _next(console, f"trackside handbook add {_shown(states['changed'])}")
    elif "gone" in states:
        _next(console, f"trackside handbook remove {_shown(states['gone'])}")
    else:
        _next(console, "trackside handbook search WORDS")


def _removed(document: dict[str, Any], console: Console) -> None:
    left = _counted(document["left"], "document")
    path = _shown(document["removed"]["path"])
    console.print(Text(f"removed {path} from the search, not from the disk; {left} left"), soft_wrap=True)
    _next(console, "trackside handbook documents")


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings[:-1]:
        table.add_column(heading, no_wrap=True)
    table.add_column(headings[-1], overflow="fold")
    return table


def _labelled(console: Console, label: str, text: str) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=8, style="bold")
    grid.add_column(overflow="fold")
    grid.add_row(label, Text(text))
    console.print(grid)


def _size(entry: dict[str, Any]) -> str:
    if entry["pages"] is not None:
        return _counted(entry["pages"], "page")
    return _counted(entry["passages"], "passage")


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _shown(path: str) -> str:
    """A path as it is typed here: short where it is below the working directory."""
    try:
        here = Path(os.getcwd()).resolve()
    except OSError:
        return path
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def _next(console: Console, command: str) -> None:
    console.print(Text.assemble(("next: ", "bold"), command), soft_wrap=True)


_VIEWS: dict[str, Callable[[dict[str, Any], Console], None]] = {
    "trackside.handbook-families/1": _families,
    "trackside.handbook-items/1": _items,
    "trackside.handbook-item/1": _item,
    "trackside.handbook-search/1": _search,
    "trackside.handbook-add/1": _added,
    "trackside.handbook-documents/1": _documents,
    "trackside.handbook-remove/1": _removed,
}
