"""Real traces of an H200, and what their JSON says, read without any code of ours."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
NAMES = ("train", "infer", "graph", "compiled")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def path_of(name: str) -> Path:
    return DATA / f"{name}.json.gz"


@cache
def text_of(name: str) -> bytes:
    return gzip.decompress(path_of(name).read_bytes())


def document(name: str) -> dict[str, Any]:
    """A fresh copy, to be changed at will."""
    found: dict[str, Any] = json.loads(text_of(name))
    return found


def events(name: str, *categories: str) -> list[dict[str, Any]]:
    """Whole events of these categories, with integer nanoseconds `begin` and `end`."""
    found = []
    for event in document(name)["traceEvents"]:
        if event["ph"] == "X" and event["cat"] in categories:
            begin = round(event["ts"] * 1000)
            found.append(event | {"begin": begin, "end": begin + round(event["dur"] * 1000)})
    return found


def changed(folder: Path, made: dict[str, Any]) -> Path:
    target = folder / "changed.json"
    target.write_text(json.dumps(made))
    return target
