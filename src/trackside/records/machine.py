"""The record of `machine`: what it is, as far as it can be read."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from trackside.records.base import Record

__all__ = ["MachineRecord"]


class MachineRecord(Record):
    """Facts under the names of `trackside.machine.facts` and `trackside.machine.surroundings`."""

    schema_: Literal["trackside.machine/1"] = Field("trackside.machine/1", alias="schema")
    fingerprint: str
    """The same after a reboot, another after a driver update or a move."""
    facts: dict[str, Any]
    surroundings: dict[str, Any]
    gpu_states: list[dict[str, Any]]
    """What NVML says of each GPU: clocks, power, links, errors, processes."""
    unknown: list[dict[str, str]]
    """What could not be read, with the reason."""
    started: str
    version: str
