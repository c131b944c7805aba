"""The record of `doctor`: what each probe found, worst first, and the items that matter most."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trackside.records.base import Part, Record

__all__ = ["DoctorCheck", "DoctorRecord", "Relevant"]


class DoctorCheck(Part):
    """One checklist item, and what there is."""

    id: str
    family: str
    title: str
    about: Literal["machine", "script"]
    status: Literal["fail", "warn", "unknown", "pass", "not_applicable"]
    found: str
    """For `unknown` and `not_applicable` the reason."""
    wanted: str
    why: str
    fix: list[str]
    places: list[str]
    weight: int


class Relevant(Part):
    """An item that matters for this workload, and why it was chosen."""

    item: str
    title: str
    because: str


class DoctorRecord(Record):
    """All probes of one machine, or of one machine and a script."""

    schema_: Literal["trackside.doctor/1"] = Field("trackside.doctor/1", alias="schema")
    fingerprint: str
    script: str | None
    families: list[str]
    """Those that were looked at."""
    counts: dict[str, int]
    """Checks by status."""
    checks: list[DoctorCheck]
    relevant: list[Relevant]
    """The most important items for this workload, with a script; empty without."""
    started: str
    seconds: float
    version: str
