"""The record of `check`: every workload of a suite, whether its claim holds, and the exit code."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from trackside.records.base import Part, Record

__all__ = ["Change", "CheckItem", "CheckRecord", "ItemStatus"]

ItemStatus = Literal["holds", "failed", "error", "inconclusive", "not-comparable", "accepted", "not-run"]
"""`accepted`: its ratio was recorded, nothing was claimed. `not-run`: the check was interrupted before it."""


class Change(Part):
    """How a ratio moved: for a candidate baseline ÷ candidate, for an accepted record now ÷ accepted."""

    ratio: float
    low: float
    high: float
    confidence: float = 0.95
    shape: Any = None


class CheckItem(Part):
    """One workload of the suite."""

    name: str
    mode: Literal["baseline", "accepted"]
    status: ItemStatus
    verdict: str | None = None
    """Of a comparison its verdict; of an accepted record `unchanged`, `slower` or `faster`."""
    claim: str
    """What was asked: `faster`, `not-slower`, or `no slower than accepted`."""
    delta: float | None = None
    change: Change | None = None
    """Of several shapes, the worst."""
    changes: list[Change] = Field(default_factory=list)
    """One for each shape, where an accepted record has several."""
    reasons: list[str] = Field(default_factory=list)
    device: str
    baseline: str
    candidate: str | None = None
    reference: str | None = None
    run_id: str | None = None
    """The comparison's own run."""
    timings: dict[str, Any] = Field(default_factory=dict)
    seconds: float = 0.0


class CheckRecord(Record):
    """One evaluation of a suite."""

    schema_: Literal["trackside.check/1"] = Field("trackside.check/1", alias="schema")
    verdict: ItemStatus
    """The worst of the items'."""
    exit_code: int
    counts: dict[str, int]
    """How many items have each status."""
    suite: str
    accepted: str | None = None
    """The file of accepted ratios, where one was read or written."""
    items: list[CheckItem]
    machine: dict[str, Any] = Field(default_factory=dict)
    interrupted: bool = False
    started: str
    seconds: float
    version: str
