"""A bench without a trial around it: a real reference process and a real baseline."""

import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trackside
from trackside.comparison.baseline import study_baseline
from trackside.comparison.bench import Bench
from trackside.comparison.checks import Ledger
from trackside.comparison.study import Study
from trackside.comparison.trial import Crew

_crews: list[Crew] = []


@contextmanager
def opened(baseline: Path) -> Iterator[tuple[Bench, Study]]:
    """A bench with the baseline studied; several may be open at a time."""
    cpus = sorted(os.sched_getaffinity(0))
    source = str(Path(trackside.__file__).parent.parent)
    readable = [sys.prefix, sys.base_prefix, *(p for p in sys.path if p), source, str(baseline.parent)]
    crew = _crew()
    bench = Bench(
        crew.fleet, crew.templates, "cpu", cpus[-1:], cpus[:1], readable, 60, Ledger(), random.Random(5)
    )
    try:
        facts = bench.start_reference(baseline)
        facts["digest"] = bench.ask("setup", seed=1, save=None)["digest"]
        bench.spec = bench.ask("specify", seeds=[bench.seed(), bench.seed()], shape=None)["spec"]
        study = study_baseline(bench, baseline, facts["format"], facts, 1, 60)
        bench.ledger.settle()
        yield bench, study
    finally:
        for process in (*(arm.process for arm in bench.arms.values()), bench.reference):
            process.kill()


def close() -> None:
    """End the crew that the benches shared."""
    while _crews:
        _crews.pop().fleet.close()


def _crew() -> Crew:
    """One for all: its template imports torch. Not that of the trials, which end whatever is there."""
    if not _crews:
        _crews.append(Crew(1))
        _crews[0].start(1)
    return _crews[0]
