"""Stacks of the user's lines, by number: a stack is its innermost line and the stack of the callers."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trackside.profiling.line_events import CodePlace

__all__ = ["NO_STACK", "Line", "LineStacks"]

NO_STACK = -1
"""Where no code of the user's runs."""


class Line(NamedTuple):
    """A line of a source file."""

    file: str
    line: int


class LineStacks:
    """Stacks by number; the stack that another stands on has the smaller number."""

    def __init__(self, places: Iterable[CodePlace]) -> None:
        self.lines: list[Line] = []
        self.parents: list[int] = []
        """The stack of the callers."""
        self.codes: list[int] = []
        """Indices into the places of the log."""
        self.line_ids: list[int] = []
        """Indices into `lines`, for each stack."""
        self._places = tuple(places)
        self._known: dict[tuple[int, int, int], int] = {}
        self._line_ids: dict[Line, int] = {}

    def __len__(self) -> int:
        return len(self.parents)

    def number(self, parent: int, code: int, line: int) -> int:
        """The stack with that line of that code on top of the parent."""
        key = parent, code, line
        known = self._known.get(key)
        if known is not None:
            return known
        place = Line(self._places[code].file, line)
        at = self._line_ids.setdefault(place, len(self.lines))
        if at == len(self.lines):
            self.lines.append(place)
        self.parents.append(parent)
        self.codes.append(code)
        self.line_ids.append(at)
        self._known[key] = len(self.parents) - 1
        return self._known[key]

    def line(self, stack: int) -> Line:
        """The innermost line."""
        return self.lines[self.line_ids[stack]]

    def function(self, stack: int) -> str:
        """The qualified name of the function that the innermost line belongs to."""
        return self._places[self.codes[stack]].function

    def trail(self, stack: int) -> Iterator[int]:
        """That stack, the one it stands on, and so on to the outermost."""
        while stack != NO_STACK:
            yield stack
            stack = self.parents[stack]
