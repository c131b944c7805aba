"""Rules about several devices: communication."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trackside.diagnose.chains import numel
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.on_device import (
    busiest_line,
    window,
)
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.wording import count, duration, percent
from trackside.trace.edits import Scale
from trackside.trace.intervals import merged
from trackside.trace.links import launch_of
from trackside.trace.timeline import breakdown, communicates

__all__: list[str] = []


@rule("exposed-collectives", "distributed", item="distributed.ddp-bucket-size", on="both")
def exposed_collectives(evidence: Evidence) -> Iterator[Draft]:
    """Communication beside which nothing is computed."""
    rows = np.flatnonzero(communicates(evidence.trace))
    begin, end = window(evidence)
    rows = rows[(evidence.trace.start[rows] >= begin) & (evidence.trace.end[rows] <= end)]
    if not len(rows):
        return
    talking = merged(evidence.trace.start[rows], evidence.trace.end[rows])
    exposed = breakdown(evidence.trace, begin, end).communication
    if exposed < 0.1 * (end - begin):
        return
    tasks = evidence.traced.tasks_of(rows)
    left = 1 - min(1.0, exposed / max(1, talking.total))
    yield Draft(
        title=f"The {'device' if evidence.has_device else 'program'} waits for communication",
        line=busiest_line(evidence, launch_of(evidence.trace, rows) if evidence.has_device else rows),
        evidence=[
            f"For {duration(exposed / len(evidence.steps))} of a step collectives run and nothing else does "
            f"({percent(exposed / (end - begin))}).",
        ],
        fix="Overlap it: larger or smaller DDP buckets (bucket_cap_mb), gradient_as_bucket_view=True, FSDP "
        "prefetching; or "
        "communicate less often with no_sync().",
        edits=[Scale(tasks, min(1.0, left + 0.5))],
        least=[Scale(tasks, min(1.0, left + 0.8))],
        most=[Scale(tasks, min(1.0, left + 0.2))],
        confidence="low",
    )


@rule("small-messages", "distributed", item="distributed.ddp-bucket-size", on="both")
def small_messages(evidence: Evidence) -> Iterator[Draft]:
    """Many collectives over small tensors in one step."""
    wanted = ("c10d::allreduce_", "c10d::_allgather_base_", "c10d::allgather_", "c10d::broadcast_")
    rows = [
        row
        for row in evidence.ops(*wanted).tolist()
        if 0 < sum(numel(shape) for shape in evidence.inputs(row).shapes if shape) * 4 < 1 << 20
    ]
    per_step = len(rows) / len(evidence.steps)
    if per_step < 10:
        return
    cost = evidence.cost(rows)
    yield Draft(
        title="Many small messages are sent one by one",
        line=busiest_line(evidence, np.array(rows)),
        evidence=[
            f"{count(per_step)} collectives of a step carry less than 1 MB each and take {duration(cost)} "
            "on the host."
        ],
        fix="Put the tensors into one buffer and send that: torch._utils._flatten_dense_tensors, or DDP's "
        "buckets.",
        edits=evidence.shrunk(rows, 0.2),
        least=evidence.shrunk(rows, 0.5),
        confidence="low",
    )
