"""The children of a suite are Trackside's own programs, whatever lies in the working directory."""

from pathlib import Path

import pytest

from trackside.suite.evaluation import start_timing
from trackside.suite.pytest_plugin import _run
from trackside.suite.suite_file import Entry


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a script that is called like the program, as one about its own races may be."""
    (tmp_path / "trackside.py").write_text("print('no program of yours')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_script_of_the_project_is_not_taken_for_the_program(folder: Path) -> None:
    missing = folder / "missing.py"
    with start_timing(Entry("a", "baseline", missing, missing), folder / "store") as child:
        ended = None
        while ended is None:
            ended = child.wait(1)
    assert ended.error is not None
    assert ended.error["kind"] == "not-found", ended.err


def test_nor_where_pytest_starts_it(folder: Path) -> None:
    assert _run([str(folder / "missing.py")] * 2, {})["error"]["kind"] == "not-found"
