"""What stays of a profile in its run's folder: the record, the page, the trace."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackside.profiling.captured import Captured
from trackside.report.profile_html import write_report
from trackside.store.runs import Run, RunStore
from trackside.trace.steps import as_run
from trackside.trace.trimmed import write_trimmed

__all__ = ["TRACE", "keep_profile"]

TRACE = "trace.json.gz"


def keep_profile(
    record: Mapping[str, Any], store: RunStore, run: Run, captured: Captured | None = None
) -> None:
    """Write them, and remove what the capture left beside.

    Args:
        captured: what was read from the run's folder `capture`; of its trace the traced steps are kept, for
            Perfetto.

    Raises:
        TracksideError: the record cannot be written.
        OSError: the others cannot.
    """
    # The program may have deleted it.
    run.folder.mkdir(parents=True, exist_ok=True)
    store.write_record(run, record)
    write_report(record, run.folder / "report.html")
    capture = run.folder / "capture"
    if captured is not None:
        _keep_trace(capture / "trace.json", captured, run.folder / TRACE)
    shutil.rmtree(capture, ignore_errors=True)


def _keep_trace(source: Path, captured: Captured, target: Path) -> None:
    steps = captured.steps
    if captured.traced is None or steps is None or not len(steps) or not source.exists():
        return
    end = as_run(captured.traced, steps).end[-1]
    write_trimmed(source, captured.traced, target, int(steps.begin[0]), int(end))
