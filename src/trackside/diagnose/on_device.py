"""What rules about devices ask: idle time, copies, and which line launched something."""

from __future__ import annotations

from statistics import median

import numpy as np

from trackside.diagnose.evidence import Evidence
from trackside.profiling.line_stacks import Line
from trackside.trace.intervals import merged
from trackside.trace.links import launch_of
from trackside.trace.model import Ints, Kind
from trackside.trace.steps import as_run
from trackside.trace.timeline import main_thread

__all__ = ["SYNCS", "busiest_line", "host_tasks", "idle_share", "in_window", "named", "window"]

SYNCS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "hipStreamSynchronize")


def window(evidence: Evidence) -> tuple[int, int]:
    """From the first step's beginning to the last one's end."""
    return int(evidence.steps.begin[0]), int(evidence.steps.end[-1])


def in_window(evidence: Evidence, *kinds: Kind) -> Ints:
    """Rows of these kinds that begin in the steps; on a device, those that the steps launch."""
    trace = evidence.trace
    rows = trace.of(*kinds)
    begin, end = window(evidence)
    calls = launch_of(trace, rows)
    began = np.where(calls >= 0, trace.start[np.maximum(calls, 0)], trace.start[rows])
    found: Ints = rows[(began >= begin) & (began < end)]
    return found


def idle_share(evidence: Evidence) -> float:
    """How much of a usual step no kernel and no copy runs on the device: one that was held up is none."""
    ran = as_run(evidence.trace, evidence.steps)
    rows = evidence.trace.on_device
    busy = merged(evidence.trace.start[rows], evidence.trace.end[rows])
    shares: list[float] = [
        1 - busy.within(begin, end).total / max(1, end - begin)
        for begin, end in zip(ran.begin.tolist(), ran.end.tolist(), strict=True)
    ]
    return median(shares)


def host_tasks(evidence: Evidence) -> Ints:
    """Tasks of the thread that launches, but for those that wait."""
    main = main_thread(evidence.trace)
    rows = evidence.traced.row
    on_main = (evidence.trace.lane[rows] == main) & ~evidence.trace.named(*SYNCS)[rows]
    return np.flatnonzero(on_main)


def busiest_line(evidence: Evidence, rows: Ints) -> Line | None:
    """The line that has the most of these rows."""
    lines = [line for row in rows.tolist() if (line := evidence.places.line(row)) is not None]
    return max(set(lines), key=lines.count) if lines else None


def named(evidence: Evidence, kind: Kind, *parts: str) -> Ints:
    """What a device ran in the steps and has one of these in its name, in small letters: `htod (pageable`."""
    wanted = [i for i, name in enumerate(evidence.trace.names) if any(part in name.lower() for part in parts)]
    rows = in_window(evidence, kind)
    return rows[np.isin(evidence.trace.name[rows], wanted)]
