"""Trackside: the performance engineer at your GPU's side."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trackside.notebook import Block
    from trackside.records.compare import CompareRecord

__all__ = ["__version__", "compare", "profile"]

__version__ = "0.1.0.dev0"


def compare(
    baseline: str | os.PathLike[str],
    candidate: str | os.PathLike[str],
    *,
    device: str = "cpu",
    metric: str = "device",
    claim: str = "faster",
    budget: float | None = None,
    delta: float | None = None,
    quick: bool = False,
    seed: int | None = None,
    pairs: int | None = None,
    threads: int | None = None,
    build_timeout: float = 300.0,
    store: str | os.PathLike[str] | None = None,
) -> CompareRecord:
    """Is the candidate faster than the baseline, and still right? `trackside compare`, as a function.

        record = trackside.compare("base.py", "new.py", device="cuda", budget=120)
        assert record.certified and record.verdict == "faster", record.reasons

    Args:
        baseline: a workload file or task folder; it is the authority on inputs, reference and tolerance.
        candidate: the file to judge.
        store: the folder for the record; the other options are those of the command line.

    Raises:
        TracksideError: wrong use, a baseline that cannot be used, or no way to run here.
    """
    # Imported here, so that `import trackside` stays quick.
    from pathlib import Path

    from trackside.comparison.options import budget_of
    from trackside.comparison.trial import Options, run_trial

    options = Options(
        Path(baseline),
        Path(candidate),
        device=device,
        metric=metric,
        claim=claim,
        budget=budget_of(budget, quick, device),
        delta=delta,
        quick=quick,
        seed=seed,
        pairs=pairs,
        threads=threads,
        build_timeout=build_timeout,
        store=None if store is None else Path(store),
    )
    options.check()
    return run_trial(options)


def profile(
    *,
    warmup: int | None = None,
    steps: int | None = None,
    seconds: float | None = None,
    store: str | os.PathLike[str] | None = None,
) -> Block:
    """Where does the time of a block go? `trackside profile` for a part of a program, or a notebook's cell.

        with trackside.profile() as profile:
            for batch in batches:
                train(batch)
        print(profile)                      # a notebook shows the report
        profile.record.lines[0]

    Args:
        warmup: steps before anything is timed.
        steps: steps of each window.
        seconds: length of each window, also where there are no steps.
        store: the folder for the record and the report.
    """
    from pathlib import Path

    from trackside.notebook import Block
    from trackside.profiling.windows import Limits

    return Block(Limits(warmup, steps, seconds), None if store is None else Path(store))
