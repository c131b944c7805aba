"""From what a capture left to findings, on the machine that it ran on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import psutil

from trackside.diagnose.diagnosis import Diagnosis, diagnose
from trackside.diagnose.evidence import Machine, gather
from trackside.diagnose.workbench import Workbench
from trackside.profiling.captured import Captured
from trackside.profiling.rank_times import RanksSeen
from trackside.profiling.record import RunFacts
from trackside.trace.model import Trace

__all__ = ["examine"]


def examine(
    captured: Captured,
    run: RunFacts,
    ranks: RanksSeen | None = None,
    counters: Mapping[str, Mapping[str, float]] | None = None,
) -> Diagnosis:
    """Ask every rule; what a fix would cost is timed here where a rule can write it down.

    Args:
        captured: as read from its folder.
        run: the command, for the one that would prove a finding, and what is known of the machine. Where
            nothing stands behind `python` there is no program to run again.
        ranks: what all ranks saw, if there are several.
        counters: what the hardware counted, by kernel.
    """
    device = _device(captured.traced)
    memory = psutil.virtual_memory()
    machine = Machine(
        cpus=len(os.sched_getaffinity(0)),
        memory_free=_memory_free(device, run.telemetry)
        if device is not None
        else memory.available / memory.total,
        ceilings=run.ceilings,
    )
    with Workbench(device=str(device.get("name", "unknown")) if device is not None else None) as workbench:
        evidence = gather(captured, run.command[1:], machine, workbench, ranks, counters)
        return diagnose(evidence) if evidence is not None else Diagnosis([], None, [])


def _device(trace: Trace | None) -> Mapping[str, Any] | None:
    """What the trace says of the first device that computed; None where the host did."""
    if trace is None or not len(trace.on_device):
        return None
    known = trace.facts.get("deviceProperties")
    first = known[0] if isinstance(known, list) and known else {}
    return first if isinstance(first, dict) else {}


def _memory_free(device: Mapping[str, Any], telemetry: Mapping[str, Any]) -> float | None:
    """The share of the device's memory that nothing ever used while the program ran."""
    used = telemetry.get("series", {}).get("gpu.memory_used", {}).get("max")
    total = device.get("totalGlobalMem")
    return 1 - used / total if used is not None and total else None
