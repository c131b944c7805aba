"""The record of `profile`: where a program's time goes, line by line, and what to change.

Times are milliseconds of one step; `share` and `gain` are 0 to 1 of it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from trackside.records.base import Part, Record

__all__ = [
    "Bound",
    "Breakdown",
    "Bucket",
    "BucketName",
    "Finding",
    "Gain",
    "HeldMemory",
    "Kernel",
    "LaneSpans",
    "Line",
    "LineMemory",
    "Memory",
    "ModuleTime",
    "ProfileRecord",
    "ProgramEnd",
    "RankTimes",
    "Trust",
    "WindowName",
    "WindowTimes",
]

Bound = Literal["memory", "compute", "latency", "launch", "communication", "copy", "host", "unknown"]

BucketName = Literal["optimizer", "loading", "copies", "communication", "autograd", "unattributed"]

WindowName = Literal["A", "L", "T", "B", "K"]
"""A: untraced; L: with the line log alone; T: traced; B: traced and with the line log; K: untraced again, but
the heap keeps what is freed."""


class ProgramEnd(Part):
    """How the program ended."""

    exit_code: int | None
    """None while it runs, and for one that a signal ended."""
    signal: str | None
    seconds: float


class WindowTimes(Part):
    """The steps of one window of the run."""

    window: WindowName
    steps: int
    step_ms: float
    """The median; where windows go by the clock, the mean."""
    spread: float
    slowdown: float | None
    """Times A's step; None for A itself, and where A has no steps."""


class Breakdown(Part):
    """A step, every instant of it once."""

    compute: float
    communication: float
    copy_: float = Field(alias="copy")
    host: float
    idle: float


class Line(Part):
    """One line of the program's source."""

    file: str
    line: int
    text: str
    """The line as it was when it ran."""
    function: str
    device_ms: float
    """What its calls started on a device, forward."""
    backward_ms: float
    """What their derivatives took, on the device or, without one, on the host."""
    cpu_ms: float
    """The host's time while this line was the innermost of the program's own."""
    share: float
    """Of all device time, both directions; without a device, of the step."""
    calls: float
    """Times that the line ran in a step."""
    shared: bool = False
    """A compiled kernel was split between this line and others."""


class Bucket(Part):
    """Time that belongs to no line of the forward pass."""

    name: BucketName
    device_ms: float
    cpu_ms: float
    share: float


class ModuleTime(Part):
    """A module by its path from the model; times are with those of the modules that it calls."""

    path: str
    type: str
    device_ms: float
    backward_ms: float
    cpu_ms: float
    share: float
    calls: float


class Kernel(Part):
    """All runs of one kernel (without a device: of one operator) in a step."""

    id: str
    """`k1`, `k2`, … as findings and other interfaces name it."""
    name: str
    calls: float
    total_ms: float
    share: float
    median_us: float
    bound: Bound
    bytes: float | None = None
    """Least bytes that its operator has to move, of all its runs in a step."""
    flops: float | None = None
    roof_share: float | None = None
    """How near it comes to what this machine was measured to do: 1 is as fast as it can be."""
    launch: dict[str, Any] = Field(default_factory=dict)
    lines: list[str] = Field(default_factory=list)
    """`file:line` of its callers, the longest first."""
    counters: dict[str, float] = Field(default_factory=dict)


class Gain(Part):
    """What a change would save, as a share of the step."""

    low: float
    mid: float
    high: float


class Finding(Part):
    """One thing to change."""

    id: str
    """The rule's name."""
    title: str
    file: str | None
    line: int | None
    gain: Gain
    confidence: Literal["high", "medium", "low"]
    evidence: list[str]
    """Sentences with numbers in them."""
    fix: str
    diff: str | None = None
    item: str | None = None
    """The checklist's item."""
    prove: str | None = None
    """The command that would show it."""
    kernels: list[str] = Field(default_factory=list)


class LaneSpans(Part):
    """A row of the timeline of one step."""

    name: str
    device: bool
    spans: list[tuple[float, float, str, str]]
    """Start and length in µs from the step's beginning, what it is, and its name."""
    left_out: int = 0
    """Spans that were too short to show."""


class LineMemory(Part):
    """What one line of the program's source holds at the peak."""

    file: str
    line: int
    text: str
    """The line as it was when it ran."""
    bytes: int
    """Taken by its calls, and by their derivatives."""
    backward_bytes: int = 0
    """The derivatives' part of it."""


class HeldMemory(Part):
    """What something holds at the peak that is no line of the steps with lines."""

    what: str
    """`parameters`, `buffers`, `optimizer state`, `gradients`, or since when or by whom it is held."""
    bytes: int


class Memory(Part):
    """Memory of the steps with lines."""

    device: str
    """`cuda:0`, `cpu` for tensors of the host's, `process` for all that the program's process has."""
    peak_bytes: int
    peak_ms: float | None = None
    """When, in the time of `series`."""
    reserved_bytes: int | None
    """What the device's allocator had at the peak, used or not."""
    total_bytes: int | None = None
    """What the device, or the machine, has in all."""
    series: list[tuple[float, int]]
    """Milliseconds from the beginning, bytes from then on."""
    step_ends_ms: list[float] = Field(default_factory=list)
    growth_bytes: int | None = None
    """How much more every step leaves than the one before; None where not every one does."""
    growth_lines: list[LineMemory] = Field(default_factory=list)
    """Lines that have taken it, with what of theirs outlives a step, the most first."""
    new_segments: int = 0
    """How often the allocator had to ask the device for more in these steps."""
    new_segment_bytes: int = 0
    lines: list[LineMemory] = Field(default_factory=list)
    """The largest first."""
    held: list[HeldMemory] = Field(default_factory=list)
    """What is no line's, the largest first; with the lines it is the whole peak."""


class RankTimes(Part):
    """One rank of a program that runs as several, under torchrun."""

    rank: int
    host: str
    device: str
    """`cpu`, or the GPU's name."""
    step_ms: float | None
    """By the untraced window; None where no step was seen."""
    spread: float | None
    steps: int
    """Untraced."""
    breakdown_ms: Breakdown | None
    waiting_ms: float | None = None
    """In collectives beside which nothing was computed, beyond what the rank that spends least there spends:
    step by step, the median. None where only one rank's time in collectives is known."""
    cpu_ms: float | None = None
    """Its main thread ran on a core."""
    delayed_ms: float | None = None
    """It stood ready to run while others had its core: what a busy machine adds to a step."""
    peak_bytes: int | None = None
    """The most memory it had: of its GPU, else of its process."""
    program: ProgramEnd | None = None
    """None where it was killed together with what watched it, or was still running."""


class Trust(Part):
    """Something that limits what this record can say."""

    what: str
    effect: str
    remedy: str | None = None


class ProfileRecord(Record):
    """One profiled program."""

    schema_: Literal["trackside.profile/1"] = Field("trackside.profile/1", alias="schema")
    command: list[str]
    verdict: str
    """One sentence: what the step is spent on, and the first thing to do."""
    device: str
    """`cpu`, or the GPU's name."""
    step_ms: float | None
    """By the untraced window; None where no step was seen."""
    step_spread: float | None
    steps: int
    """Traced."""
    steps_found_by: str
    windows: list[WindowTimes]
    breakdown_ms: Breakdown | None
    attributed_share: float | None
    program: ProgramEnd
    lines: list[Line] = Field(default_factory=list)
    buckets: list[Bucket] = Field(default_factory=list)
    modules: list[ModuleTime] = Field(default_factory=list)
    kernels: list[Kernel] = Field(default_factory=list)
    kernels_left_out: int = 0
    findings: list[Finding] = Field(default_factory=list)
    together: Gain | None = None
    """All findings applied at once, through the critical path: not their sum."""
    critical_path: dict[str, float] = Field(default_factory=dict)
    """Shares of the step by what the longest chain runs on."""
    timeline: list[LaneSpans] = Field(default_factory=list)
    memory: list[Memory] = Field(default_factory=list)
    ranks: list[RankTimes] = Field(default_factory=list)
    """All ranks that left something, if there are several; the rest of the record is about the first."""
    ceilings: dict[str, float] = Field(default_factory=dict)
    """Measured speeds of this machine that the kernels are held against."""
    telemetry: dict[str, Any] = Field(default_factory=dict)
    environment: dict[str, Any] = Field(default_factory=dict)
    sources: dict[str, list[str]] = Field(default_factory=dict)
    """Files with lines of their own time, as they were."""
    trust: list[Trust] = Field(default_factory=list)
    options: dict[str, Any] = Field(default_factory=dict)
    started: str
    seconds: float
    version: str
