"""The process that outlives the judge: it ends the tree, removes the folder and leaves a record."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.processes import alive, until

from trackside.store.runs import RunStore
from trackside.workload import supervisor
from trackside.workload.channel import Channel, pair
from trackside.workload.supervisor import descendants, end_below, remove_tree, stat_fields


class Supervised:
    """A supervisor under a test's control."""

    def __init__(self, folder: Path) -> None:
        self.channel, theirs = pair()
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trackside.workload.supervisor", str(theirs.fileno()), str(folder)],
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    def start(self, tmp_path: Path, source: str) -> Channel:
        """A process below the supervisor that runs `source` in a template's place, and the channel to it."""
        package = tmp_path / "stand-in" / "trackside" / "workload"
        package.mkdir(parents=True, exist_ok=True)
        for part in (package, package.parent):
            (part / "__init__.py").write_text("")
        (package / "template.py").write_text("import os, signal, sys, time\n" + textwrap.dedent(source))
        ours, theirs = pair()
        environment = {"PYTHONPATH": str(tmp_path / "stand-in"), "PATH": os.environ["PATH"]}
        message = {
            "op": "template",
            "environment": environment,
            "log": str(self.folder / "log"),
            "folder": str(self.folder),
            "preload": [],
        }
        self.channel.send(message, [theirs.fileno()])
        self.pid = self.channel.receive(10)["pid"]
        theirs.close()
        return ours

    def ends(self) -> None:
        self.process.wait(20)


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    folder = tmp_path / "run"
    folder.mkdir()
    made = Supervised(folder)
    yield made
    made.channel.close()
    made.process.wait(20)


_DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("daemon", "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""


def daemon_of(supervised: Supervised) -> int:
    place = supervised.folder / "daemon"
    until(lambda: place.exists() and place.read_text(), "the daemon's process id")
    return int(place.read_text())


def test_a_daemonised_child_dies_with_the_run(supervised: Supervised, tmp_path: Path) -> None:
    with supervised.start(tmp_path, _DAEMON).sock:
        daemon = daemon_of(supervised)
        until(lambda: daemon in descendants(supervised.process.pid), "adoption by the supervisor")
        supervised.channel.send({"op": "finish"})
        assert supervised.channel.receive(20)["ended"] >= 2
        assert not alive(daemon)
        assert not alive(supervised.pid)
        assert not supervised.folder.exists()


def test_a_judge_that_vanishes_has_its_tree_ended_and_its_folder_removed(
    supervised: Supervised, tmp_path: Path
) -> None:
    with supervised.start(tmp_path, _DAEMON).sock:
        daemon = daemon_of(supervised)
        supervised.channel.close()
        supervised.ends()
        assert not alive(daemon)
        assert not supervised.folder.exists()


def test_stopped_processes_are_ended_too(supervised: Supervised, tmp_path: Path) -> None:
    with supervised.start(tmp_path, "os.kill(os.getpid(), signal.SIGSTOP)").sock:
        stopped = lambda: ") T " in Path(f"/proc/{supervised.pid}/stat").read_text()  # noqa: E731
        until(stopped, "the stop")
        supervised.channel.close()
        supervised.ends()
        assert not alive(supervised.pid)


def test_orphans_that_ended_do_not_pile_up(supervised: Supervised, tmp_path: Path) -> None:
    source = """
    for _ in range(20):
        if os.fork() == 0:
            if os.fork() == 0:
                os._exit(0)
            os._exit(0)
        os.wait()
    open("made", "w").write("all")
    time.sleep(600)
    """
    with supervised.start(tmp_path, source).sock:
        until(lambda: (supervised.folder / "made").exists(), "the orphans")
        until(lambda: descendants(supervised.process.pid) == [supervised.pid], "the orphans' reaping")
        assert supervised.process.poll() is None


def test_signals_from_a_terminal_do_not_end_it(supervised: Supervised, tmp_path: Path) -> None:
    with supervised.start(tmp_path, "time.sleep(600)").sock:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            supervised.process.send_signal(number)
        supervised.channel.send({"op": "finish"})
        # It is told again to one that takes its time to die.
        assert supervised.channel.receive(20)["ended"] >= 1
        assert not alive(supervised.pid)


def promise(supervised: Supervised, store: RunStore, status: str = "failed") -> Path:
    run = store.new_run("compare")
    place = {"id": run.id, "folder": str(run.folder), "verb": run.verb}
    supervised.channel.send(
        {"op": "fallback", "run": place, "record": {"status": status, "reasons": ["gone"]}}
    )
    supervised.channel.receive(10)
    return run.folder / "record.json"


def test_a_promised_record_is_written_when_the_judge_vanishes(supervised: Supervised, tmp_path: Path) -> None:
    store = RunStore(tmp_path / "store")
    record = promise(supervised, store)
    assert not record.exists()
    supervised.channel.close()
    supervised.ends()
    assert store.load("last") == {"status": "failed", "reasons": ["gone"]}


def test_a_record_that_is_there_is_not_replaced_by_the_promised_one(
    supervised: Supervised, tmp_path: Path
) -> None:
    store = RunStore(tmp_path / "store")
    record = promise(supervised, store)
    record.write_text('{"status": "done"}')
    supervised.channel.close()
    supervised.ends()
    assert store.load("last") == {"status": "done"}


@pytest.mark.parametrize("message", [{"op": "unknown"}, {"no": "op"}, {"op": "template"}])
def test_nonsense_on_its_channel_ends_the_run_or_is_passed_over_but_never_leaves_it_behind(
    supervised: Supervised, message: dict[str, Any]
) -> None:
    supervised.channel.send(message)
    supervised.channel.close()
    supervised.ends()
    assert not supervised.folder.exists()


def test_descendants_are_found_below_names_with_brackets(tmp_path: Path) -> None:
    rename = "ctypes.CDLL(None).prctl(15, b'a) S 1 (b')"
    script = f"import ctypes, time; {rename}; print('named', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert process.pid in descendants(os.getpid())
    finally:
        process.kill()
        process.communicate()


# -- removing what user code built -----------------------------------------------------------------


def test_a_deep_chain_of_folders_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    here = os.open(root, os.O_RDONLY)
    for depth in range(1500):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
        if depth % 500 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    remove_tree(root)
    assert not root.exists()


def test_links_are_removed_and_what_they_point_to_stays(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    root = tmp_path / "run"
    (root / "sub").mkdir(parents=True)
    (root / "folder").symlink_to(outside)
    (root / "sub" / "file").symlink_to(outside / "kept")
    (root / "sub" / "self").symlink_to(root)
    remove_tree(root)
    assert not root.exists()
    assert (outside / "kept").read_text() == "kept"


def test_folders_without_permissions_are_removed_by_their_owner(tmp_path: Path) -> None:
    root = tmp_path / "run"
    (root / "shut" / "inner").mkdir(parents=True)
    (root / "shut" / "inner" / "file").write_text("x")
    (root / "shut" / "inner").chmod(0)
    (root / "shut").chmod(0)
    drop = ""
    if os.geteuid() == 0:
        # Permissions mean nothing to root: an ordinary user has to do it.
        drop = "os.setgroups([]); os.setgid(65534); os.setuid(65534)"
        # Every folder on the way; pytest makes one more for each of its own workers.
        for folder in (tmp_path, *tmp_path.parents):
            if "pytest-" in str(folder):
                folder.chmod(0o777)
        for place in (root, root / "shut", root / "shut" / "inner", root / "shut" / "inner" / "file"):
            os.chown(place, 65534, 65534)
    script = f"""
import os, pathlib, sys
from trackside.workload.supervisor import remove_tree
{drop}
remove_tree(pathlib.Path(sys.argv[1]))
"""
    subprocess.run([sys.executable, "-c", script, str(root)], check=True)
    assert not root.exists()


def test_a_folder_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    remove_tree(tmp_path / "never")
    assert list(tmp_path.iterdir()) == []


def test_ending_what_is_below_a_process_that_has_gone_ends_nothing() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert end_below(gone.pid, ()) == 0


def test_a_process_that_has_hopped_on_since_the_reading_is_ended_by_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    gone = subprocess.Popen(sleeping, process_group=0)
    hopped = subprocess.Popen(sleeping, process_group=gone.pid)
    read = {gone.pid: stat_fields(gone.pid)}
    gone.kill()
    gone.wait()
    monkeypatch.setattr(supervisor, "_stats_below", lambda root: read)
    try:
        end_below(os.getpid(), ())
        assert hopped.wait(10) == -signal.SIGKILL
    finally:
        hopped.kill()
        hopped.wait()
