"""Hints that files changed: from the kernel, and from the clock."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from trackside.suite.changes import Changes


def noticed(changes: Changes, seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if changes.wait(0.1):
            return True
    return False


@pytest.fixture
def listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Changes:
    # Or the clock would notice everything anyway.
    monkeypatch.setattr("trackside.suite.changes._POLL_ANYWAY_S", 1e9)
    pytest.importorskip("watchfiles")
    (tmp_path / "a.py").write_text("1")
    changes = Changes([tmp_path])
    assert changes.how == "watchfiles"
    # The thread has to reach the kernel first: write until it hears.
    for number in range(200):
        (tmp_path / "first.py").write_text(str(number))
        if changes.wait(0.1):
            break
    while changes.wait(0.3):
        pass
    return changes


def test_a_write_a_rename_and_a_new_file_in_a_new_folder_are_noticed(
    listening: Changes, tmp_path: Path
) -> None:
    with listening:
        (tmp_path / "a.py").write_text("2")
        assert noticed(listening)
        # As editors do: another file takes the place.
        (tmp_path / "a.py~").write_text("3")
        os.replace(tmp_path / "a.py~", tmp_path / "a.py")
        assert noticed(listening)
        (tmp_path / "deep").mkdir()
        (tmp_path / "deep" / "b.py").write_text("4")
        assert noticed(listening)


def test_a_project_below_a_folder_of_a_tool_is_watched_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trackside.suite.changes._POLL_ANYWAY_S", 1e9)
    pytest.importorskip("watchfiles")
    project = tmp_path / "venv" / "project"
    project.mkdir(parents=True)
    with Changes([project]) as changes:
        for number in range(200):
            (project / "a.py").write_text(str(number))
            if changes.wait(0.1):
                return
    raise AssertionError("none of 200 changes was noticed")


def test_folders_of_tools_are_none_of_our_business(listening: Changes, tmp_path: Path) -> None:
    with listening:
        for name in (".git", ".trackside", "__pycache__"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "x").write_text("1")
        assert not noticed(listening, 1.0)


def test_a_burst_is_waited_for(listening: Changes) -> None:
    over = threading.Event()

    def burst() -> None:
        for _ in range(12):
            listening._hint.set()
            time.sleep(0.02)
        over.set()

    with listening:
        thread = threading.Thread(target=burst)
        thread.start()
        assert noticed(listening)
        assert over.is_set()
        thread.join()


def test_hundreds_of_files_at_once_are_a_few_hints_at_most(listening: Changes, tmp_path: Path) -> None:
    with listening:
        for number in range(300):
            (tmp_path / f"f{number}.py").write_text("1")
        assert noticed(listening)
        assert sum(listening.wait(0.1) for _ in range(10)) <= 2


def test_without_watchfiles_the_clock_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with Changes([tmp_path]) as changes:
        assert changes.how == "polling"
        assert noticed(changes)
