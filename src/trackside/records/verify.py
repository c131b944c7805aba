"""The record of `verify`: item by item, whether a stored certificate still holds."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trackside.records.base import Part, Record
from trackside.records.compare import Speedup

__all__ = ["Rerun", "VerifyItem", "VerifyRecord"]


class VerifyItem(Part):
    """One thing that a certificate rests on, then and now."""

    id: str
    status: Literal["pass", "fail", "unknown"]
    detail: str
    then: str | None = None
    now: str | None = None


class Rerun(Part):
    """The same comparison, made again."""

    run_id: str | None
    verdict: str
    speedup: Speedup | None
    agrees: bool
    detail: str


class VerifyRecord(Record):
    """A certificate looked at later; `run_id` is the run that was looked at."""

    schema_: Literal["trackside.verify/1"] = Field("trackside.verify/1", alias="schema")
    holds: bool
    """Nothing failed and nothing is unknown."""
    verdict: str
    certificate: Literal["full", "reduced", "none"]
    items: list[VerifyItem]
    changed: list[str]
    """The ids of the items that failed."""
    unknown: list[str]
    rerun: Rerun | None = None
