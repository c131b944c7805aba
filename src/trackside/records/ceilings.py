"""The record of `ceilings`: measured speeds, each with how it was measured, and what follows from them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from trackside.records.base import Part, Record

__all__ = ["Ceiling", "CeilingsRecord", "Skipped", "Sustained"]


class Ceiling(Part):
    """One measured speed."""

    place: str
    """`cpu`, `disk` or `cuda:N`."""
    name: str
    """`gpu.memory.read`; which GPU, `place` says."""
    title: str
    unit: Literal["B/s", "FLOP/s", "1/s", "µs", "ns"]
    value: float
    """The median of all repetitions."""
    best: float
    spread: float
    """Relative interquartile range."""
    n: int
    method: str
    sm_mhz: float | None = None
    """Median SM clock while it was measured, on a GPU."""
    power_w: float | None = None


class Sustained(Part):
    """A long run of products on one GPU: is its speed kept?"""

    place: str
    seconds: float
    first: float
    """FLOP/s in the first fifth of the time."""
    last: float
    n: int
    sm_mhz: float | None
    power_w: float | None
    temperature: float | None
    slowdowns: list[str]
    """Why clocks were held down meanwhile, as the driver says."""


class Skipped(Part):
    place: str
    name: str
    title: str
    why: str


class CeilingsRecord(Record):
    """All places that were measured, with the machine and the day."""

    schema_: Literal["trackside.ceilings/1"] = Field("trackside.ceilings/1", alias="schema")
    fingerprint: str
    places: list[str]
    gpus: dict[str, str | int] = Field(default_factory=dict)
    """Which GPU `cuda:N` was, by its UUID: CUDA_VISIBLE_DEVICES decides that anew each time."""
    ceilings: list[Ceiling]
    sustained: list[Sustained]
    skipped: list[Skipped]
    sentences: list[str]
    disturbed: list[str] = Field(default_factory=list)
    """What else happened meanwhile: a hypervisor's steal, a CPU quota, a GPU held down or shared."""
    error: str | None = None
    """Why a `failed` one ended."""
    disk_folder: str | None
    software: dict[str, Any]
    measured_at: str
    """UTC, ISO 8601."""
    seconds: float
    cached: bool = False
    """Whether this was read from an earlier measurement."""
    version: str
