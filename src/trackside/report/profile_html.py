"""A profile as one HTML file that works offline: the record as data, and the script that draws it.

The page's policy allows its own script and style by their hashes and nothing else; whatever the record says
reaches the page as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import shlex
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackside.report.profile_page_data import fitted

__all__ = ["MOST_BYTES", "write_report"]

MOST_BYTES = 5_000_000
"""What mail and review tools still take, and a browser opens at once."""

_ASSETS = Path(__file__).parent / "assets" / "profile"
# In this order they are one script; all share one scope.
_SCRIPTS = (
    "page.js",
    "overview.js",
    "ranks.js",
    "source.js",
    "kernels.js",
    "charts.js",
    "timeline.js",
    "machine.js",
    "start.js",
)
_TITLE_LENGTH = 120

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="trackside">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript><main><h1>{verdict}</h1><p>The rest of this page is drawn by its own script, which is
switched off in this browser. <code>trackside runs show</code> prints the same on a terminal.</p></main>
</noscript>
<script type="application/json" id="record">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def write_report(record: Mapping[str, Any], path: Path) -> None:
    """Write the report of a profile's record; an older file at `path` is replaced at once or not at all.

    Where the whole record would make the page larger than `MOST_BYTES`, the page has less of it and says so.
    """
    page = _page(record).encode("utf-8", "replace")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(page)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _page(record: Mapping[str, Any]) -> str:
    style = (_ASSETS / "profile.css").read_text(encoding="utf-8")
    parts = "\n".join((_ASSETS / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    script = f'(() => {{\n"use strict";\n{parts}}})();\n'
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    frame = {
        "policy": html.escape(policy),
        "title": html.escape(_title(record)),
        "verdict": html.escape(str(record.get("verdict", ""))),
        "style": style,
        "script": script,
    }
    room = MOST_BYTES - len(_PAGE.format(data="", **frame).encode("utf-8", "replace"))
    data = fitted(record, lambda part: len(_inert(part)), room)
    return _PAGE.format(data=_inert(data), **frame)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _inert(data: Any) -> str:
    """JSON in ASCII that no HTML parser takes for anything else; lone surrogates are escaped too."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _title(record: Mapping[str, Any]) -> str:
    command = shlex.join(str(word) for word in record.get("command", ()))
    # Controls, line separators and what turns the direction of writing have no place in a window's title.
    plain = "".join(" " if unicodedata.category(sign)[0] in "CZ" else sign for sign in command)
    short = plain if len(plain) <= _TITLE_LENGTH else f"{plain[:_TITLE_LENGTH]}…"
    return f"Profile of {short}" if short else "Profile"
