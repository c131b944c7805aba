"""Rules about several devices and ranks: communication, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trackside.diagnose.chains import numel
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.on_device import (
    busiest_line,
    window,
)
from trackside.diagnose.rule import Draft, rule
from trackside.diagnose.wording import count, percent
from trackside.profiling.line_stacks import Line
from trackside.profiling.rank_times import LEAST_BY_ITSELF, Lag, RanksSeen, lag
from trackside.profiling.ranks import ranks_named
from trackside.records.durations import duration
from trackside.trace.edits import Scale
from trackside.trace.intervals import merged
from trackside.trace.links import launch_of
from trackside.trace.timeline import breakdown, communicates

__all__: list[str] = []

# Of what the others wait, so much must be one line's of the late rank for that line to be named.
_MOST_OF_IT = 0.25


@rule("straggler", "distributed", item="distributed.stragglers", on="both")
def straggler(evidence: Evidence) -> Iterator[Draft]:
    """A rank for which the others wait in their collectives."""
    behind = lag(evidence.ranks)
    if behind is None or behind.by_itself < LEAST_BY_ITSELF:
        return
    which, several = ranks_named(behind.late), len(behind.late) > 1
    waiting, step = duration(1e6 * behind.waiting_ms), duration(1e6 * behind.step_ms)
    # Windows by the clock hold different steps on each rank, of which only the mean can be compared.
    when = (
        f"In {behind.in_steps} of {behind.of_steps} traced steps" if behind.of_steps > 1 else "On the average"
    )
    told = [
        f"{when} the others wait in collectives for "
        f"{'them' if several else 'it'}, {waiting} of a step of {step} "
        f"({percent(behind.waiting_ms / behind.step_ms)}).",
        f"Outside of collectives {which} {'work' if several else 'works'} "
        f"{duration(1e6 * behind.late_work_ms)} of a step, the others "
        f"{duration(1e6 * behind.others_work_ms)}.",
    ]
    place = _longer_line(evidence.ranks, behind)
    line = None
    fix = (
        "Give all ranks the same amount of work, sequences of like lengths too; else look at that rank's "
        "device and cores with `trackside doctor`: clocks, temperature, other jobs."
    )
    if place is not None and place.more_ms >= _MOST_OF_IT * behind.waiting_ms:
        line = Line(place.file, place.line)
        told.append(
            f"{place.file}:{place.line} takes {duration(1e6 * place.ms)} on rank {place.rank} and "
            f"{duration(1e6 * place.others_ms)} on the others."
        )
        fix = (
            "Split what this line does evenly over all ranks; what one rank must do alone, as logging or "
            "checkpoints, belongs in a thread or in every so many steps."
        )
    yield Draft(
        title=f"{which.capitalize()} {'make' if several else 'makes'} the others wait",
        line=line,
        evidence=told,
        fix=fix,
        edits=(),
        # Split evenly, a step is shorter by the mean of all ranks' waiting; with the work gone, by all of it.
        saves=(
            behind.by_itself * behind.mean_waiting_ms / behind.step_ms,
            behind.waiting_ms / behind.step_ms,
        ),
        confidence="medium" if line is not None else "low",
    )


@dataclass(frozen=True)
class _Longer:
    """A line on which a late rank spends more of a step than the others do."""

    file: str
    line: int
    rank: int
    ms: float
    others_ms: float

    @property
    def more_ms(self) -> float:
        return self.ms - self.others_ms


def _longer_line(ranks: RanksSeen, behind: Lag) -> _Longer | None:
    def spent(rank: int) -> dict[tuple[str, int], float]:
        return {
            (one.file, one.line): max(one.cpu_ms, one.device_ms) + one.backward_ms
            for one in ranks.lines.get(rank, ())
        }

    others = [found for rank in ranks.lines if rank not in behind.late and (found := spent(rank))]
    if not others:
        return None
    longer = [
        _Longer(*place, rank, ms, sum(one.get(place, 0.0) for one in others) / len(others))
        for rank in behind.late
        for place, ms in spent(rank).items()
    ]
    return max(longer, key=lambda one: one.more_ms, default=None)


@rule("exposed-collectives", "distributed", item="distributed.ddp-bucket-size", on="both")
def exposed_collectives(evidence: Evidence) -> Iterator[Draft]:
    """Communication beside which nothing is computed."""
    rows = np.flatnonzero(communicates(evidence.trace))
    begin, end = window(evidence)
    rows = rows[(evidence.trace.start[rows] >= begin) & (evidence.trace.end[rows] <= end)]
    if not len(rows) or lag(evidence.ranks) is not None:
        # Of a rank that waits for another, faster communication would only make the waiting longer.
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
