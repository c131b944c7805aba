"""The record of `compare`: a verdict, how sure it is, and everything it rests on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from trackside.records.base import Part, Record

__all__ = ["CheckResult", "CompareRecord", "FileIdentity", "ShapeResult", "Speedup", "Verdict"]

Verdict = Literal["faster", "slower", "equivalent", "inconclusive", "rejected", "not-comparable"]
Status = Literal["pass", "warn", "fail", "unknown", "not_applicable"]


class Speedup(Part):
    """Baseline time divided by candidate time."""

    ratio: float
    low: float
    high: float
    confidence: float = 0.95
    metric: Literal["device", "wall"]
    bounded: float | None
    """The ratio by the judge's own clock, which no candidate can reach."""
    bounded_low: float | None = None
    bounded_high: float | None = None
    lie_us: float | None = None
    """Microseconds per call that a lying worker could hide from the judge's clock."""


class CheckResult(Part):
    """What one check saw."""

    id: str
    status: Status
    detail: str
    evidence: dict[str, Any] = Field(default_factory=dict)


class FileIdentity(Part):
    """A file as it was when compared."""

    path: str
    format: str
    sha256: str
    files: dict[str, str] = Field(default_factory=dict)
    """Every file that was part of it, with its SHA-256."""


class ShapeResult(Part):
    """The verdict for one shape."""

    shape: Any
    verdict: Verdict
    speedup: Speedup | None
    checks: list[CheckResult]
    reasons: list[str]
    accuracy: dict[str, Any]
    timings: dict[str, Any]
    memory: dict[str, Any]
    floor: dict[str, Any] | None
    statistics: dict[str, Any]


class CompareRecord(Record):
    """One comparison."""

    schema_: Literal["trackside.compare/1"] = Field("trackside.compare/1", alias="schema")
    verdict: Verdict
    certified: bool
    certificate: Literal["full", "reduced", "none"]
    """`reduced`: isolation or an input check that the certificate would want could not be had."""
    claim: Literal["faster", "not-slower"]
    holds: bool
    """Whether the claim holds; what the exit code says."""
    speedup: Speedup | None
    checks: list[CheckResult]
    reasons: list[str]
    accuracy: dict[str, Any] = Field(default_factory=dict)
    timings: dict[str, Any] = Field(default_factory=dict)
    memory: dict[str, Any] = Field(default_factory=dict)
    floor: dict[str, Any] | None = None
    statistics: dict[str, Any] = Field(default_factory=dict)
    shapes: list[ShapeResult] = Field(default_factory=list)
    baseline: FileIdentity | None = None
    candidate: FileIdentity | None = None
    environment: dict[str, Any] = Field(default_factory=dict)
    telemetry: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)
    started: str
    seconds: float
    version: str
    commit: str | None = None
    seal: str | None = None
    """SHA-256 of the record's canonical JSON without this field; `trackside verify` computes it again."""
