"""A trace that someone else has recorded, read as far as it goes: everything but true times and lines."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from trackside.profiling.captured import Captured, without_marks
from trackside.profiling.record import RunFacts
from trackside.records.errors import TracksideError
from trackside.records.profile import ProgramEnd, Trust, WindowTimes
from trackside.stats.spread import quantile
from trackside.trace.file import Progress
from trackside.trace.model import Trace
from trackside.trace.reader import read_trace
from trackside.trace.steps import as_run, find_steps

__all__ = ["seen_trace"]


def seen_trace(
    path: Path, run_id: str | None = None, progress: Progress = lambda read: None
) -> tuple[Captured, RunFacts]:
    """What `build_record` needs, from a trace file.

    Raises:
        TracksideError: it is no trace, or an empty one.
    """
    started, began = datetime.now(UTC), time.monotonic()
    # It may be one of ours.
    trace = without_marks(read_trace(path, progress))
    if not len(trace):
        raise TracksideError(
            "usage", f"there is no event in {path}", "give a trace that was recorded while the program ran"
        )
    captured = _captured(trace)
    span_s = float(trace.end.max() - trace.start.min()) / 1e9
    run = RunFacts(
        command=[str(path)],
        program=ProgramEnd(exit_code=None, signal=None, seconds=span_s),
        started=started.isoformat(timespec="seconds"),
        started_s=started.timestamp(),
        seconds=time.monotonic() - began,
        folder=os.getcwd(),
        torch="unknown",
        run_id=run_id,
        environment={"trace": _facts(trace), "file_bytes": path.stat().st_size},
        options={"trace": str(path)},
    )
    return captured, run


def _captured(trace: Trace) -> Captured:
    found = Captured(
        missing=[
            Trust(what=cut.what, effect=cut.why, remedy="record it again: the file is not whole")
            for cut in trace.cuts
        ]
    )
    found.traced, found.steps = trace, find_steps(trace)
    ran = as_run(trace, found.steps)
    lengths = ((ran.end - ran.begin) / 1e6).tolist()
    middle = median(lengths)
    spread = (quantile(lengths, 0.75) - quantile(lengths, 0.25)) / middle if middle else 0.0
    found.windows = [
        WindowTimes(window="T", steps=len(lengths), step_ms=middle, spread=spread, slowdown=None)
    ]
    found.missing += [
        Trust(
            what="true step times",
            effect="a trace tells how long steps took while they were traced, which is longer",
            remedy="run the program: trackside profile SCRIPT",
        ),
        Trust(
            what="lines",
            effect="a trace does not tell which line of the program ran an operator",
            remedy="run the program: trackside profile SCRIPT",
        ),
    ]
    return found


def _facts(trace: Trace) -> dict[str, object]:
    plain = (str, int, float, bool)
    return {name: value for name, value in trace.facts.items() if isinstance(value, plain)}
