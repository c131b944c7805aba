"""The record of `selfcheck`: every comparison it ran, and the error rates that follow from them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from trackside.records.base import Part, Record
from trackside.records.compare import Verdict

__all__ = ["Linearity", "Rate", "SelfcheckRecord", "SelfcheckRun", "Session"]

Experiment = Literal["aa", "injected", "swap", "linearity"]


class SelfcheckRun(Part):
    """One comparison, as far as its verdict goes; its record and quads are in the file `raw`."""

    experiment: Experiment
    workload: str
    percent: float
    """Extra work of the candidate, or of the baseline when swapped."""
    swapped: bool
    group: int
    """Within one experiment: runs that are read together have the same number."""
    session: int
    verdict: Verdict | None
    """None when the comparison itself failed; then `error` says how."""
    error: str | None = None
    certificate: str | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    half_width: float | None = None
    """Of the interval of the log ratio: 0.003 is 0.3 %."""
    judge_ratio: float | None = None
    baseline_us: float | None = None
    quads: int | None = None
    quads_kept: int | None = None
    sm_clock_mhz: float | None = None
    seconds: float
    """Of the whole process, waiting for the device included."""
    reason: str | None = None
    run_id: str | None = None
    raw: str | None = None


class Session(Part):
    """One call of selfcheck; calls with the same --out add up."""

    started: str
    seconds: float
    machine: dict[str, Any]
    jobs: int
    planned: int
    ran: int
    interrupted: bool = False
    """By the user; a time limit shows in `ran` being less than `planned`."""


class Rate(Part):
    """How often something happened: k of n, with the exact binomial interval."""

    experiment: Experiment
    workload: str
    """A workload's name, or `all`."""
    what: Literal["false", "found", "wrong", "refused", "reciprocal"]
    k: int
    n: int
    low: float
    high: float
    confidence: float = 0.95
    verdicts: dict[str, int]
    """How the n came out; `error` where the comparison itself failed."""


class Linearity(Part):
    """Measured against true slowdown, both as logarithms: a straight line of slope 1 if compare is right."""

    workload: str
    n: int
    slope: float
    low: float
    high: float
    offset: float
    """The line at no extra work, as a log ratio."""
    points: list[tuple[float, float]]
    """Extra work and measured slowdown, both in percent."""


class SelfcheckRecord(Record):
    """All runs so far, and what they say."""

    schema_: Literal["trackside.selfcheck/1"] = Field("trackside.selfcheck/1", alias="schema")
    device: Literal["cpu", "cuda"]
    budget: float
    source_sha256: str
    """Over the files of comparison, workload and stats: runs of other sources are never pooled."""
    holds: bool | None
    """Whether nothing was found wrong; None where no comparison came to a verdict."""
    findings: list[str]
    rates: list[Rate]
    linearity: list[Linearity]
    half_width: dict[str, float]
    """Median half-width of the interval by workload."""
    seconds_each: dict[str, float]
    """Median seconds of one comparison by workload."""
    sessions: list[Session]
    runs: list[SelfcheckRun]
    folder: str
    """Where results.json and raw/ are."""
    version: str
