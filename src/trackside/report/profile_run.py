"""What stays of a profile in its run's folder: the record, the page, the trace."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from trackside.report.profile_html import write_report
from trackside.store.runs import Run, RunStore

__all__ = ["keep_profile"]


def keep_profile(record: Mapping[str, Any], store: RunStore, run: Run) -> None:
    """Write them, and remove what the capture left beside.

    Raises:
        TracksideError: the record cannot be written.
        OSError: the others cannot.
    """
    # The program may have deleted it.
    run.folder.mkdir(parents=True, exist_ok=True)
    store.write_record(run, record)
    write_report(record, run.folder / "report.html")
    capture = run.folder / "capture"
    if (capture / "trace.json").exists():
        (capture / "trace.json").replace(run.folder / "trace.json")
    shutil.rmtree(capture, ignore_errors=True)
