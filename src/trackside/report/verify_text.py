"""What `verify` found on a terminal: the answer first, then what changed, then what was looked at."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

__all__ = ["render"]

_MARKS = {"pass": ("green", "✓"), "fail": ("red", "✗"), "unknown": ("magenta", "?")}


def render(record: dict[str, Any], console: Console) -> None:
    """Print a verify record."""
    run_id, changed, unknown = record["run_id"], record["changed"], record["unknown"]
    line = Text(" ")
    if record["holds"]:
        line.append(" HOLDS ", style="bold green reverse")
        line.append(f"  nothing that the certificate of {run_id} rests on has changed")
    elif changed:
        line.append(" DOES NOT HOLD ", style="bold red reverse")
        line.append(f"  {len(changed)} of {len(record['items'])} items of {run_id} fail")
    else:
        line.append(" NOT KNOWN ", style="bold magenta reverse")
        line.append(f"  no change seen in {run_id}, but {len(unknown)} items cannot be told")
    console.print()
    console.print(line)
    for status in ("fail", "unknown", "pass"):
        colour, mark = _MARKS[status]
        for item in record["items"]:
            if item["status"] == status:
                name = item["id"].partition(":")[0]
                console.print(Text.assemble((f"    {mark} {name}  ", colour), item["detail"]))
    after = (
        f"trackside runs show {run_id}"
        if record["holds"] and record["rerun"]
        else (f"trackside verify {run_id} --rerun" if record["holds"] else f"trackside runs show {run_id}")
    )
    console.print(Text.assemble(("  next: ", "bold"), after))
    console.print()
