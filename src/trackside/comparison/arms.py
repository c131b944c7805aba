"""The two arms, and what comes of running one: its worker, its calls, the slots that they were made in."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trackside.workload.fleet import Process

__all__ = ["BASELINE", "CANDIDATE", "Arm", "Call", "Slot"]

BASELINE, CANDIDATE = "baseline", "candidate"


@dataclass
class Call:
    """One call of one arm: which set it saw, what came out, how long the worker says it took."""

    id: int
    set: int
    seed: int
    leaves: list[dict[str, Any]]
    ns: float
    host: int
    errors: list[dict[str, Any]] | None = None
    """Against the oracle, leaf by leaf, once somebody asked."""


@dataclass
class Slot:
    """A batch of calls between one go and one private copy."""

    calls: list[Call]
    judge_ns: int
    enqueued_ns: int
    hooks: list[str]
    late_ns: list[int]
    """For each paced call, how long the device went on after the event that ended it."""
    waited: list[int]
    """On a GPU, 1 for each call that returned when the device had done what was enqueued before it."""
    output_bytes: int
    """Memory that the outputs of one call span, gaps and all: so much is copied."""


@dataclass
class Arm:
    """One arm's present worker."""

    name: str
    path: Path
    process: Process
    call_timeout: float
    """Seconds that one call may take; each further one in a slot has the bench's `further_timeout` more."""
    borrows_setup: bool = False
    """Whether it is a candidate whose state the baseline's `setup` makes."""
    build_seconds: float = 0.0
    call_ns: float = 0.0
    """What the candidate says an audited call took: for planning, since it may lie."""
    slots: int = 0
    """How many its arena has."""
    holds: dict[int, tuple[int, int]] = field(default_factory=dict)
    """For each slot, set and seed of the call that was last made there."""
