"""Programs with planted problems, each captured once, and a workbench for all."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.profiling.test_capture import keeping_memory

from trackside.diagnose.evidence import Evidence, Machine, gather
from trackside.diagnose.workbench import Workbench
from trackside.profiling.captured import read_capture
from trackside.profiling.launch import launch
from trackside.profiling.program import Program

PROGRAMS = Path(__file__).parent / "programs"
_MARK = re.compile(r"#\s*problem:\s*(.+)$")


def problems(program: Path) -> set[tuple[str, int]]:
    """Rules and the lines that they have to find, as the program's own comments say."""
    found = set()
    for number, text in enumerate(program.read_text().splitlines(), 1):
        marked = _MARK.search(text)
        for rule in marked[1].split() if marked else ():
            found.add((rule, number))
    return found


@pytest.fixture(scope="session")
def workbench() -> Iterator[Workbench]:
    with Workbench(threads=1, seconds=0.3) as bench:
        yield bench


@pytest.fixture(scope="session")
def evidence_of(workbench: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Evidence]:
    """The evidence of a program; each is run once."""
    known: dict[Path, Evidence] = {}

    def gathered(program: Path) -> Evidence:
        if program not in known:
            folder = tmp_path_factory.mktemp(program.stem)
            found = _captured(program, folder, workbench)
            assert found is not None, f"{program.name}: no step was traced"
            known[program] = found
        return known[program]

    return gathered


def _captured(program: Path, folder: Path, workbench: Workbench) -> Evidence | None:
    # One thread: on a machine that others use, two wait for each other more than they compute.
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        with (folder / "out").open("wb") as out, keeping_memory():
            ended = launch(
                Program(str(program)),
                "trackside.profiling.capture:around",
                {"warmup": 1, "steps": 4},
                folder,
                stdout=out.fileno(),
            )
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
    assert (ended.exit_code, ended.trouble) == (0, None)
    return gather(read_capture(folder), [program.name], Machine(cpus=2, memory_free=0.5), workbench)
