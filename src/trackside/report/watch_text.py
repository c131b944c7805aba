"""The status of a watch on a terminal: one line per workload, newest events below."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trackside.records.errors import printable

__all__ = ["clock_time", "screen"]

_STYLES: Final = {
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
# Who goes first where not all have room.
_WORST_FIRST: Final = ("rejected", "failed", "broken", "error", "checking", "timing", "undecided")
_SHOWN_EVENTS: Final = 5
_INDENT: Final = 2
# "HH:MM:SS " in front of an event.
_CLOCK: Final = 9


def screen(document: dict[str, Any], console: Console, height: int | None = None) -> RenderableType:
    """All of it, or as much as a height holds; what is left out is counted.

    Args:
        document: of `Status.to_dict`.
        console: where it will be shown: its width decides how lines are broken.
        height: lines at most; None for no limit.
    """
    watched = "watched until now:" if document["state"] == "ended" else "watching"
    title = Text(printable(f"{watched} {document['suite']}"), style="bold")
    top: list[Text] = [Text(printable(document["error"]), style="red")] if document["error"] else []
    items = [
        Text(printable(item["line"]), style=_STYLES.get(item["state"], "")) for item in document["items"]
    ]
    events = document["events"][-_SHOWN_EVENTS:]
    width = max(1, console.width - _INDENT)
    if height is not None:
        left = height - _lines(console, [title], console.width) - _lines(console, top, width)
        if _lines(console, items, width) > left:
            items = _worst(document["items"], items, console, width, left)
        left -= _lines(console, items, width)
        told = [Text(printable(event["line"])) for event in events]
        while events and _lines(console, told, max(1, width - _CLOCK)) > left:
            events, told = events[1:], told[1:]
    rows: list[RenderableType] = [title]
    rows += [Padding(text, (0, 0, 0, _INDENT)) for text in (*top, *items)]
    log = Table.grid(padding=(0, 1, 0, 0))
    for event in events:
        line = Text(printable(event["line"]), style="dim")
        log.add_row(" " * (_INDENT - 1), Text(clock_time(event["time"]), style="dim"), line)
    return Group(*rows, log)


def clock_time(stamp: str) -> str:
    """The time of day where the reader sits, of a time in ISO 8601."""
    return datetime.fromisoformat(stamp).astimezone().strftime("%H:%M:%S")


def _worst(
    found: list[dict[str, Any]], texts: list[Text], console: Console, width: int, height: int
) -> list[Text]:
    """Those that have room, the worst first, and how many have not."""
    order = {state: number for number, state in enumerate(_WORST_FIRST)}
    ranked = sorted(range(len(texts)), key=lambda number: order.get(found[number]["state"], len(order)))
    kept: list[int] = []
    for number in ranked:
        if _lines(console, [*(texts[one] for one in kept), texts[number]], width) + 1 > height:
            break
        kept.append(number)
    rest = Text(f"… {len(texts) - len(kept)} more", style="dim")
    return [*(texts[number] for number in sorted(kept)), rest]


def _lines(console: Console, texts: list[Text], width: int) -> int:
    return sum(len(text.wrap(console, width)) for text in texts)
