"""From what a capture left to findings, on the machine that it ran on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import psutil

from trackside.diagnose.diagnosis import Diagnosis, diagnose
from trackside.diagnose.evidence import Machine, gather
from trackside.diagnose.workbench import Workbench
from trackside.profiling.captured import Captured
from trackside.profiling.rank_times import RanksSeen

__all__ = ["examine"]


def examine(
    captured: Captured,
    command: Iterable[str],
    ceilings: Mapping[str, float],
    ranks: RanksSeen | None = None,
) -> Diagnosis:
    """Ask every rule; what a fix would cost is timed here where a rule can write it down.

    Args:
        captured: as read from its folder.
        command: what stood behind `python`, for the command that would prove a finding.
        ceilings: measured speeds of this machine.
        ranks: what all ranks saw, if there are several.
    """
    memory = psutil.virtual_memory()
    machine = Machine(
        cpus=len(os.sched_getaffinity(0)),
        memory_free=memory.available / memory.total,
        ceilings=ceilings,
    )
    on_device = captured.traced is not None and len(captured.traced.on_device) > 0
    with Workbench() as workbench:
        # It computes on the CPU, which says nothing of a device.
        evidence = gather(captured, command, machine, None if on_device else workbench, ranks)
        return diagnose(evidence) if evidence is not None else Diagnosis([], None, [])
