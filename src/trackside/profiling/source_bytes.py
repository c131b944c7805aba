"""The program's files as they are while it runs, for who shows them later. Runs in the program's process."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable
from typing import Any

__all__ = ["source_bytes"]

_MOST_BYTES, _MOST_FILES = 1_000_000, 200


def source_bytes(files: Iterable[str]) -> dict[str, Any]:
    """By file, its bytes, each as the sign with its number, since they may be no text, or why not."""
    found: dict[str, Any] = {}
    for file in files:
        if len(found) >= _MOST_FILES:
            break
        try:
            with open(file, "rb") as opened:
                data = opened.read(_MOST_BYTES + 1)
                changed_s = os.fstat(opened.fileno()).st_mtime
        except OSError as error:
            # A cell of a notebook is in no file, but kept for tracebacks.
            lines = linecache.getlines(file)
            if not lines:
                found[file] = {"why": error.strerror or str(error)}
                continue
            data, changed_s = "".join(lines).encode("utf-8", "replace"), 0.0
        if len(data) > _MOST_BYTES:
            found[file] = {"why": f"it has more than {_MOST_BYTES:,} bytes"}
        else:
            found[file] = {"bytes": data.decode("latin-1"), "changed_s": changed_s}
    return found
