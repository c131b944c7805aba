"""Writes the parts of these pages that the source already knows: the checks, the options of compare.

`python docs/generate.py` rewrites them; with `--check` it only says whether they are up to date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def checks() -> str:
    """The catalogue of checks as a table."""
    from trackside.comparison.checks import CATALOGUE

    lines = ["| check | looks for | catches | a failure means |", "|---|---|---|---|"]
    for check in CATALOGUE.values():
        cells = [f"`{check.id}`", check.looks_for, _sentence(check.catches), f"`{check.on_fail}`"]
        lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    return "\n".join(lines)


def options() -> str:
    """The options of `trackside compare` as a table."""
    from typer.main import get_command

    from trackside.cli.compare import app

    lines = ["| option | default | what it does |", "|---|---|---|"]
    for parameter in get_command(app).params:
        if parameter.param_type_name != "option" or parameter.name == "help":
            continue
        default = parameter.default
        shown = (
            "" if default in (None, False) else f"`{default:g}`" if type(default) is float else f"`{default}`"
        )
        lines.append(f"| `{parameter.opts[0]}` | {shown} | {_cell(parameter.help or '')} |")
    return "\n".join(lines)


def gains() -> str:
    """Predicted gains against those that compare measured, from the newest results of each device."""
    lines = []
    for kind in ("cpu", "cuda"):
        found = sorted((HERE.parent / "benchmarks" / "results").glob(f"*-{kind}/gains.json"))
        if not found:
            continue
        result = json.loads(found[-1].read_text(encoding="utf-8"))
        machine = result["machine"]
        name = ", ".join(machine["gpus"]) if kind == "cuda" else f"{machine['cpu']}, one thread"
        rows = result["data"]["rows"]
        inside = sum(row["inside"] for row in rows)
        lines += [
            f"**{name}** ({result['date'][:10]}): {inside} of {len(rows)} inside.",
            "",
            "| program | rule | predicted | realised | |",
            "|---|---|---|---|---|",
            *(_gain_row(row) for row in rows),
            "",
        ]
    return "\n".join(lines) if lines else "Nothing has been measured yet.\n"


def _gain_row(row: dict[str, Any]) -> str:
    gain, realised = row["gain"], row["realised"]
    told = f"{gain['low']:.0%} to {gain['high']:.0%}" if gain else "nothing"
    seen = (
        f"{realised:.1%} [{row['realised_low']:.1%}, {row['realised_high']:.1%}]"
        if realised is not None
        else row["verdict"]
    )
    return (
        f"| {row['pair']} | `{row['rule']}` | {told} | {seen} | {'inside' if row['inside'] else 'outside'} |"
    )


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "checks": ("verdicts.md", checks),
    "options": ("compare.md", options),
    "gains": ("profile.md", gains),
}
"""Name of the markers in a page -> the page, and what belongs between them."""


def rewritten(name: str) -> tuple[Path, str, str]:
    """A page, its present text, and the text that it should have."""
    file, make = PARTS[name]
    path = HERE / file
    text = path.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{path}: found no markers for `{name}`")
    return path, text, pattern.sub(lambda m: f"{m[1]}{make()}\n{m[2]}", text)


def main(arguments: list[str]) -> int:
    stale = 0
    for name in PARTS:
        path, before, after = rewritten(name)
        if before == after:
            continue
        stale += 1
        if "--check" in arguments:
            print(
                f"{path.name}: the part `{name}` is out of date; run python docs/generate.py", file=sys.stderr
            )
        else:
            path.write_text(after, encoding="utf-8")
    return 1 if stale and "--check" in arguments else 0


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
