"""The record of `runs diff`: where the time went between two profiles. Milliseconds of one step."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trackside.records.base import Part, Record
from trackside.records.profile import Finding

__all__ = ["Change", "LineChange", "MemoryChange", "ProfileDiff"]


class Change(Part):
    """One thing in both profiles; None where it is in one only."""

    name: str
    before_ms: float | None
    after_ms: float | None
    delta_ms: float
    """After minus before, what is absent counting as none: below 0 is time saved."""


class LineChange(Change):
    """One line of source; `name` is `file:line` of the later profile, or of the earlier if it is gone."""

    before_line: int | None
    after_line: int | None
    text: str


class MemoryChange(Part):
    """The most memory of a device in the steps with lines; None where one profile did not see it."""

    device: str
    before_bytes: int | None
    after_bytes: int | None
    delta_bytes: int | None
    """Below 0 is memory saved."""


class ProfileDiff(Record):
    """Two profiles of one program, or of two versions of it."""

    schema_: Literal["trackside.profile-diff/1"] = Field("trackside.profile-diff/1", alias="schema")
    before: str
    after: str
    """Ids of the runs."""
    verdict: str
    """One sentence."""
    step: Change | None
    """None where a profile has no step times."""
    beyond_spread: bool | None
    """Whether the steps differ by more than they vary inside a profile."""
    doubts: list[str] = Field(default_factory=list)
    """Why the two may not be comparable, a sentence each."""
    breakdown: list[Change] = Field(default_factory=list)
    lines: list[LineChange] = Field(default_factory=list)
    buckets: list[Change] = Field(default_factory=list)
    modules: list[Change] = Field(default_factory=list)
    kernels: list[Change] = Field(default_factory=list)
    memory: list[MemoryChange] = Field(default_factory=list)
    fixed: list[Finding] = Field(default_factory=list)
    """Findings of the earlier profile that the later has not."""
    new: list[Finding] = Field(default_factory=list)
