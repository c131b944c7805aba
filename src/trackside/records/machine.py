"""The record of `machine`: what it is, as far as it can be read."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from trackside.records.base import Record

__all__ = ["MachineRecord"]


class MachineRecord(Record):
    """Fields of `trackside.machine.facts` and `trackside.machine.surroundings`, each under its own name."""

    schema_: Literal["trackside.machine/1"] = Field("trackside.machine/1", alias="schema")
    fingerprint: str
    """The same after a reboot, another after a driver update or a move."""
    cpu: dict[str, Any]
    memory: dict[str, Any]
    limits: dict[str, Any]
    """What control groups allow."""
    kernel: str | None
    virtualisation: str | None
    container: str | None
    gpus: list[dict[str, Any]]
    """Facts of each, and under `state` what NVML says of it now: clocks, power, links, errors, processes."""
    software: dict[str, Any]
    libraries: dict[str, str]
    disks: list[dict[str, Any]]
    filesystems: list[dict[str, Any]]
    fabrics: list[dict[str, Any]]
    profilers: list[dict[str, Any]]
    fits: list[dict[str, Any]]
    """Versions that must go together, and whether they do."""
    unknown: list[dict[str, str]]
    """What could not be read, with the reason."""
    started: str
    version: str
