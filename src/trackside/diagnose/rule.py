"""A rule and what it hands in; the modules of the families fill the list of all rules when imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trackside.diagnose.evidence import Evidence
from trackside.profiling.line_stacks import Line
from trackside.trace.edits import Edit

__all__ = ["RULES", "Confidence", "Draft", "Family", "Look", "Rule", "rule"]

Confidence = Literal["high", "medium", "low"]
Family = Literal["host", "input", "compile", "arithmetic", "kernel", "training", "distributed", "cpu"]


@dataclass(frozen=True)
class Draft:
    """A finding before it has a price."""

    title: str
    line: Line | None
    evidence: Sequence[str]
    fix: str
    edits: Sequence[Edit]
    """What the change does to the traced graph, by the best estimate."""
    least: Sequence[Edit] | None = None
    """The same at its most careful; `spread` of the gain where it is left out."""
    most: Sequence[Edit] | None = None
    spread: float = 0.3
    """How far the gain may lie from the estimate, as a share of it."""
    rare: bool = False
    """Whether it costs single steps only: then steps count as they were, and not as they usually are."""
    confidence: Confidence = "medium"
    diff: str | None = None
    saves: tuple[float, float] | None = None
    """The estimate and the most, as shares of the step.

    Where the graph of one rank does not hold what the change would save: then there are no edits.
    """


Look = Callable[[Evidence], Iterator[Draft]]


@dataclass(frozen=True)
class Rule:
    """One thing to look for."""

    id: str
    family: Family
    look: Look = field(repr=False)
    item: str
    """Of the checklist."""
    on: Literal["host", "device", "both"]
    """Whether it speaks of programs that compute on the host, on a device, or both."""
    yields_to: frozenset[str]
    """More particular rules: where one of them found the same line, this one is silent."""

    @property
    def about(self) -> str:
        return (self.look.__doc__ or "").strip().partition("\n")[0]


RULES: dict[str, Rule] = {}


def rule(
    name: str,
    family: Family,
    item: str,
    on: Literal["host", "device", "both"] = "both",
    yields_to: Sequence[str] = (),
) -> Callable[[Look], Look]:
    """Makes a function a rule."""

    def register(look: Look) -> Look:
        if name in RULES:
            raise ValueError(f"there are two rules {name}")
        RULES[name] = Rule(name, family, look, item, on, frozenset(yields_to))
        return look

    return register
