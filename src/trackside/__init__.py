"""Trackside: the performance engineer at your GPU's side."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trackside.records.compare import CompareRecord

__all__ = ["__version__", "compare"]

__version__ = "0.1.0.dev0"


def compare(
    baseline: str | os.PathLike[str], candidate: str | os.PathLike[str], **options: Any
) -> CompareRecord:
    """Is the candidate faster than the baseline, and still right? `trackside compare`, as a function.

        record = trackside.compare("base.py", "new.py", device="cuda", budget=120)
        assert record.certified and record.verdict == "faster", record.reasons

    Args:
        baseline: a workload file or task folder; it is the authority on inputs, reference and tolerance.
        candidate: the file to judge.
        **options: as on the command line (`device`, `metric`, `claim`, `budget`, `delta`, `quick`, `seed`,
            `pairs`, `threads`, `build_timeout`); `store` is the folder for the record.

    Raises:
        TracksideError: wrong use, a baseline that cannot be used, or no way to run here.
    """
    # Imported here, so that `import trackside` stays quick.
    from pathlib import Path

    from trackside.comparison.trial import Options, run_trial

    return run_trial(Options(Path(baseline), Path(candidate), **options))
