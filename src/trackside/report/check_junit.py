"""A check record as JUnit XML, the form in which CI systems show single results."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any, Final

from trackside.report.check_text import change_text, outcome_text

__all__ = ["junit"]

# XML 1.0 has no form for these, not even an escaped one.
_NOT_XML: Final = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")


def junit(record: dict[str, Any]) -> bytes:
    """The document. A claim that is undecided, or cannot be decided here, is skipped: not green, not red."""
    items = record["items"]
    counts = {
        "tests": len(items),
        "failures": sum(item["status"] == "failed" for item in items),
        "errors": sum(item["status"] == "error" for item in items),
        "skipped": sum(item["status"] in ("inconclusive", "not-comparable", "not-run") for item in items),
    }
    attributes = {name: str(count) for name, count in counts.items()} | {"time": f"{record['seconds']:.3f}"}
    root = ElementTree.Element("testsuites", {"name": "trackside check", **attributes})
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        {"name": _clean(record["suite"]), "timestamp": record["started"], **attributes},
    )
    for item in items:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {
                "classname": "trackside",
                "name": _clean(item["name"]),
                "file": _clean(item["candidate"] or item["baseline"]),
                "time": f"{item['seconds']:.3f}",
            },
        )
        summary = _clean(change_text(item))
        reasons = _clean("\n".join(item["reasons"]))
        kind = {"failed": "failure", "error": "error"}.get(item["status"], "skipped")
        if item["status"] in ("holds", "accepted"):
            ElementTree.SubElement(case, "system-out").text = "\n".join(filter(None, (summary, reasons)))
            continue
        # CI systems show this line alone: without a measurement the first reason says most.
        first = item["reasons"][0] if item["reasons"] and item["change"] is None else ""
        message = _clean(": ".join(filter(None, (outcome_text(item), first))))
        ElementTree.SubElement(case, kind, {"message": message, "type": item["status"]}).text = reasons
    ElementTree.indent(root)
    data: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return data + b"\n"


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
