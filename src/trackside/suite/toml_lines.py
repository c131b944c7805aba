"""On which line of a TOML file a key stands, and which key on a line: tomllib gives values without places."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, Final

__all__ = ["key_on", "line_of"]

_HEADER: Final = re.compile(r"\s*\[\[?(?P<name>[^\[\]#]+)\]\]?\s*(#.*)?$")
_KEY: Final = re.compile(r"\s*(?P<name>(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*[^=\s]+)*)\s*=")


def line_of(source: str, path: Sequence[str]) -> int | None:
    """The line, from 1 on, of the key or table at a path such as `("workload", "softmax", "budget")`.

    The nearest table around it where the key itself is not found, as inside an inline table; None where even
    that is not there.
    """
    wanted, best, best_depth = list(path), None, 0
    for number, found in _places(source):
        # `[workload.softmax]` is also where `workload` first stands.
        common = min(len(found), len(wanted))
        depth = common if found[:common] == wanted[:common] else 0
        if depth > best_depth:
            best, best_depth = number, depth
    return best


def key_on(source: str, line: int) -> str | None:
    """The key or table that begins on a line, with the table that it is in; None where none does."""
    return next((".".join(found) for number, found in _places(source) if number == line and found), None)


def _places(source: str) -> Iterator[tuple[int, list[str]]]:
    """The lines on which a key or a table begins, and its parts."""
    table: list[str] = []
    fence = ""
    for number, line in enumerate(source.splitlines(), 1):
        if fence:
            # Inside text over several lines nothing is a key.
            fence = "" if fence in line else fence
            continue
        header = _HEADER.match(line)
        key = None if header else _KEY.match(line)
        if header:
            table = _parts(header["name"])
        if header or key:
            yield number, [*table, *(_parts(key["name"]) if key else ())]
        for mark in ('"""', "'''"):
            if line.count(mark) % 2:
                fence = mark


def _parts(dotted: str) -> list[str]:
    """The parts of a dotted key, quotes taken off; as TOML itself reads it."""
    try:
        value: Any = tomllib.loads(f"{dotted.strip()} = 0")
    except tomllib.TOMLDecodeError:
        return []
    parts: list[str] = []
    while isinstance(value, dict):
        (name, value), *_ = value.items()
        parts.append(name)
    return parts
