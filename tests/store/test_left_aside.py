"""Files that a killed comparison of commands had moved away: the next one puts them back."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes import gone, until

from trackside.store.jobs import Jobs
from trackside.store.left_aside import put_back_left

OLD = "open('out.txt', 'w').write('x')\n"
# The first that runs says so, and never ends; whoever comes after it does.
NEW = (
    "import os, pathlib, time\n"
    "first = not os.path.exists('began')\n"
    "pathlib.Path('began').write_text(str(os.getpid())) if first else None\n"
    "open('out.txt', 'w').write('half' if first else 'x')\n"
    "time.sleep(60 if first else 0)\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRACKSIDE_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("TRACKSIDE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.py").write_text(OLD)
    (tmp_path / "new.py").write_text(NEW)
    (tmp_path / "out.txt").write_text("precious")
    return tmp_path


def words(*more: str) -> list[str]:
    python = sys.executable
    return ["compare", "--command", "--output", "out.txt", *more, f"{python} old.py", f"{python} new.py"]


def is_full(file: Path) -> bool:
    return file.exists() and bool(file.read_text())


def hidden(folder: Path) -> list[Path]:
    return sorted(folder.glob(".out.txt.trackside-*"))


@pytest.mark.timeout(120)
def test_a_killed_runner_leaves_its_supervisor_the_time_to_put_files_back(folder: Path) -> None:
    with Jobs(folder / "home") as jobs:
        job = jobs.start(words())
        until(lambda: is_full(folder / "began"), "the candidate runs")
        assert hidden(folder)
        (runner,) = [int(pid) for pid in os.listdir("/proc") if pid.isdecimal() and is_runner(pid, job.id)]
        os.kill(runner, signal.SIGKILL)
        assert jobs.wait(job.id, 60).state == "interrupted"
    assert (folder / "out.txt").read_text() == "precious"
    assert hidden(folder) == []


def is_runner(pid: str, job: str) -> bool:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"trackside.store.job_process" in line and job.encode() in line


@pytest.mark.timeout(120)
def test_after_a_kill_of_all_its_processes_the_next_comparison_puts_the_file_back(folder: Path) -> None:
    judge = subprocess.Popen([sys.executable, "-m", "trackside", *words()], stderr=subprocess.DEVNULL)
    until(lambda: is_full(folder / "began"), "the candidate runs")
    (aside,) = hidden(folder)
    host = int(aside.name.rpartition("-")[2])
    # The host is stopped first, or it would put things back before it is killed.
    for pid, number in ((host, signal.SIGSTOP), (judge.pid, signal.SIGKILL), (host, signal.SIGKILL)):
        os.kill(pid, number)
    judge.wait()
    until(lambda: gone([host]), "it is gone")
    os.kill(int((folder / "began").read_text()), signal.SIGKILL)
    assert (folder / "out.txt").read_text() == "half"
    again = [sys.executable, "-m", "trackside", *words("--quick", "--budget", "20")]
    done = subprocess.run(again, capture_output=True, text=True, timeout=90)
    assert "trackside: out.txt is put back" in done.stderr
    assert "kept as out.txt.left-1" in done.stderr
    assert (folder / "out.txt").read_text() == "precious"
    assert (folder / "out.txt.left-1").read_text() == "half"
    assert hidden(folder) == []


def test_several_are_all_kept_and_the_first_that_was_moved_has_the_name(tmp_path: Path) -> None:
    # Numbers that no process can have.
    for number, text in ((4194305, "precious"), (4194306, "half")):
        (tmp_path / "out.txt").write_text(text)
        os.rename(tmp_path / "out.txt", tmp_path / f".out.txt.trackside-{number}")
    said = put_back_left(tmp_path, ["out.txt", "absent.txt"])
    assert len(said) == 2
    assert (tmp_path / "out.txt").read_text() == "precious"
    assert (tmp_path / "out.txt.left-1").read_text() == "half"
    assert put_back_left(tmp_path, ["out.txt"]) == []


def test_what_a_live_comparison_hides_and_what_only_looks_like_it_is_left_alone(tmp_path: Path) -> None:
    names = [".out.txt.trackside-x", ".other.txt.trackside-4194305", "out.txt"]
    for name in names:
        (tmp_path / name).touch()
    stand_in = [sys.executable, "-c", "input()", "trackside.comparison.command_host"]
    with subprocess.Popen(stand_in, stdin=subprocess.PIPE) as live:
        (tmp_path / f".out.txt.trackside-{live.pid}").touch()
        until(lambda: b"host" in Path(f"/proc/{live.pid}/cmdline").read_bytes(), "it has its name")
        assert put_back_left(tmp_path, ["out.txt"]) == []
        live.kill()
    assert len(put_back_left(tmp_path, ["out.txt"])) == 1
