"""A check record as Markdown, for a pull request or a job's summary."""

from __future__ import annotations

import re
from typing import Any, Final

from trackside.records.errors import printable
from trackside.report.check_text import counts_text, outcome_text

__all__ = ["markdown"]

_SIGNS: Final = {
    "holds": "✅",
    "accepted": "✅",
    "failed": "❌",
    "error": "💥",
    "inconclusive": "❔",
    "not-comparable": "⬜",
    "not-run": "⏹️",
}
_LONGEST_REASON: Final = 300


def markdown(record: dict[str, Any]) -> str:
    """A heading, a table with a row for each workload, and the reasons below it."""
    sign = _SIGNS[record["verdict"]]
    lines = [
        f"### {sign} trackside check: {counts_text(record)}",
        "",
        "| | workload | result | device |",
        "|---|---|---|---|",
    ]
    for item in record["items"]:
        cells = (
            _SIGNS[item["status"]],
            _text(item["name"]),
            _text(outcome_text(item)),
            _text(item["device"]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    told = [
        f"- {_text(item['name'])}: {_text(reason[:_LONGEST_REASON])}"
        for item in record["items"]
        for reason in item["reasons"]
        if item["status"] not in ("holds", "accepted")
    ]
    if told:
        lines += ["", *told]
    machine = record["machine"]
    where = ", ".join(str(name) for name in (machine.get("cpu"), *machine.get("gpus", [])) if name)
    lines += ["", f"<sub>run {record['run_id']}, {record['seconds']:.0f} s, on {_text(where)}</sub>", ""]
    return "\n".join(lines)


def _text(text: str) -> str:
    """Text from elsewhere as Markdown shows it: on one line, with nothing in it that means anything."""
    plain = " ".join(printable(text).split())
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # A name or a message must make no link, no mention of a person and no cell of its own.
    return re.sub(r"([\\`*_{}\[\]()#|~!@$])", lambda found: f"&#{ord(found[0])};", plain)
