"""The program's source files as they were while it ran, as lines of text."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Sources", "decoded_lines", "read_sources"]


@dataclass
class Sources:
    """Files by name."""

    lines: dict[str, list[str]] = field(default_factory=dict)
    changed_s: dict[str, float] = field(default_factory=dict)
    """When each was last changed, in seconds since 1970."""
    why_not: dict[str, str] = field(default_factory=dict)
    """Files that cannot be shown, and the reason."""

    def text(self, file: str, line: int) -> str:
        lines = self.lines.get(file, ())
        return lines[line - 1] if 0 < line <= len(lines) else ""


def read_sources(document: Mapping[str, Any]) -> Sources:
    """From what the capture kept of them."""
    found = Sources()
    for file, one in document.items():
        if "bytes" not in one:
            found.why_not[file] = str(one.get("why", "it was not kept"))
            continue
        try:
            found.lines[file] = decoded_lines(one["bytes"].encode("latin-1"))
            found.changed_s[file] = float(one["changed_s"])
        except (SyntaxError, UnicodeDecodeError) as error:
            found.why_not[file] = f"it is not text in the encoding that it names: {error}"
    return found


def decoded_lines(data: bytes) -> list[str]:
    """As Python reads it: UTF-8, or what its first lines say."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    # Not splitlines, which breaks lines where Python does not.
    lines = data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]
