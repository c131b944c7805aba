"""Fixtures of trials that share a crew."""

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.comparison import benches
from tests.comparison.judged import BUILD_SECONDS, Judged
from tests.comparison.program import BASELINE, HONEST
from tests.processes import alive

from trackside.comparison.trial import Crew, Options, run_trial
from trackside.records.errors import TracksideError
from trackside.store.runs import RunStore
from trackside.workload.supervisor import descendants


@pytest.fixture(scope="session")
def crew(crews: Callable[[int], Crew]) -> Crew:
    """Of one thread, whatever the machine has."""
    return crews(1)


@pytest.fixture(scope="session", autouse=True)
def _benches() -> Iterator[None]:
    """Those that tests open share a crew of their own, which ends with them."""
    yield
    benches.close()


@pytest.fixture
def judge(crew: Crew, tmp_path: Path) -> Iterator[Callable[..., Judged]]:
    """Runs one candidate through every check but the clocks; afterwards nothing may be left of it."""

    def run(candidate: str, baseline: str = BASELINE, **options: Any) -> Judged:
        files = tmp_path / "files"
        files.mkdir(exist_ok=True)
        (files / "base.py").write_text(textwrap.dedent(baseline))
        (files / "new.py").write_text(HONEST + textwrap.dedent(candidate))
        asked = Options(
            files / "base.py",
            files / "new.py",
            **{"checks_only": True, "build_timeout": BUILD_SECONDS, "store": tmp_path / "store"} | options,
        )
        error = None
        try:
            run_trial(asked, crew=crew)
        except TracksideError as caught:
            error = caught
        record = RunStore(tmp_path / "store").load("last")
        return Judged(record["verdict"], "; ".join(record["reasons"]), record, error)

    yield run
    left = [
        p for p in descendants(crew.fleet._process.pid) if p not in crew.fleet._template_pids and alive(p)
    ]
    folders = [p.name for p in crew.fleet.folder.iterdir() if p.is_dir()]
    crew.fleet.sweep()
    assert not left, f"processes left behind: {left}"
    assert not folders, f"folders left behind: {folders}"
