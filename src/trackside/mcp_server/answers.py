"""What tools answer: flat models, short since every client gets their schemas with the list of tools.

Times are milliseconds of one step; shares and gains are 0 to 1 of it.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, PrivateAttr

__all__ = [
    "MANY_LINES",
    "Answer",
    "Ceiling",
    "Change",
    "Cost",
    "Diff",
    "Finding",
    "Findings",
    "Handbook",
    "Hotspots",
    "Job",
    "Kernel",
    "Kernels",
    "Line",
    "Machine",
    "Passage",
    "Run",
    "Runs",
    "Source",
    "Started",
]

MANY_LINES: Final = frozenset({"source", "diff", "log", "fix"})
"""Fields whose text may have line breaks."""


class _Model(BaseModel):
    # Docstrings are for readers of this file, and not for every client's context.
    model_config = ConfigDict(json_schema_extra=lambda schema: schema.pop("description", None) and None)


class Answer(_Model):
    """`rows` is what gives way where an answer would be too long; `shown` says how many are left."""

    counted: ClassVar[str] = ""
    """What rows are, for `shown`."""

    run: str = ""
    """The run that the claims are from."""
    shown: str = ""
    links: list[str] = []

    _total: int | None = PrivateAttr(None)

    def of(self, total: int) -> Self:
        """With the number of all rows, of which these are the first."""
        self._total = total
        return self

    @property
    def total(self) -> int | None:
        return self._total


class Ceiling(_Model):
    place: str
    name: str
    value: float
    unit: str
    n: int
    spread: float
    run: str | None
    day: str


class Machine(Answer):
    counted = "ceilings"
    fingerprint: str
    cpu: str
    memory: str
    gpus: list[str]
    software: dict[str, str]
    unknown: list[str]
    rows: list[Ceiling]
    next: str = ""


class Line(_Model):
    file: str
    line: int
    text: str
    ms: float
    """Forward and backward, on the device or, without one, on the host."""
    cpu_ms: float | None
    """Beside `ms` of a device alone."""
    share: float
    calls: float
    kernels: list[str]


class Hotspots(Answer):
    counted = "lines"
    device: str
    step_ms: float | None
    spread: float | None
    steps: int
    steps_found_by: str
    rows: list[Line]
    other: dict[str, float]
    """Shares that belong to no line."""
    trust: list[str]


class Kernel(_Model):
    id: str
    name: str
    calls: float
    ms: float
    share: float
    bound: str | None
    of_limit: float | None
    lines: list[str]
    counters: dict[str, float]


class Kernels(Answer):
    counted = "kernels"
    device: str
    step_ms: float | None
    rows: list[Kernel]
    next: str = ""


class Finding(_Model):
    id: str
    title: str = ""
    status: str | None = None
    file: str | None = None
    line: int | None = None
    gain: list[float] | None = None
    """Low, mid, high."""
    confidence: str | None = None
    evidence: list[str] = []
    fix: str = ""
    diff: str | None = None
    kernels: list[str] = []
    item: str | None = None


class Findings(Answer):
    counted = "findings"
    verdict: str = ""
    reasons: list[str] = []
    rows: list[Finding]
    next: str = ""


class Run(_Model):
    id: str
    verb: str
    started: str
    state: str
    verdict: str | None
    about: str | None


class Runs(Answer):
    counted = "runs"
    rows: list[Run]
    note: str = ""
    """What the store has to say of itself: an index that was damaged and made anew."""


class Change(_Model):
    kind: str
    name: str
    before_ms: float | None
    after_ms: float | None
    delta_ms: float


class Diff(Answer):
    counted = "changes"
    before: str
    verdict: str
    beyond_spread: bool | None
    doubts: list[str]
    rows: list[Change]
    gone: list[str]
    """Findings of the earlier run that the later has not."""
    new: list[str]


class Passage(_Model):
    title: str
    place: str
    snippet: str
    do: list[str] = []


class Handbook(Answer):
    counted = "passages"
    matched: str
    rows: list[Passage]


class Cost(_Model):
    line: int
    ms: float
    share: float


class Source(Answer):
    counted = "lines with a cost"
    file: str
    first: int
    last: int
    lines: int
    source: str
    rows: list[Cost]
    note: str = ""


class Started(Answer):
    job: str
    state: str
    reason: str | None = None
    next: str


class Job(Answer):
    job: str
    verb: str
    state: str
    progress: str = ""
    reason: str | None = None
    exit_code: int | None = None
    verdict: str | None = None
    certified: bool | None = None
    speedup: list[float] | None = None
    """Ratio, low, high: baseline's time over candidate's."""
    measured: str = ""
    """Times, spreads and counts behind it."""
    reasons: list[str] = []
    log: str = ""
    """The end of what the program and the verb wrote; data, no instruction."""
    next: str = ""
