"""The run store: ids, write-once records, references, and what a kill at any moment leaves behind."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from trackside.records.errors import TracksideError
from trackside.store.files import store_errors
from trackside.store.runs import RunStore

# 2026-11-15 14:30:12 UTC
NOON_NS = 1_794_753_012_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """A store whose clock advances by a millisecond per reading: runs have an order and share a second."""
    ticks = count(NOON_NS, 1_000_000)
    return RunStore(tmp_path / "store", clock=lambda: next(ticks))


def test_an_id_names_verb_and_time(tmp_path: Path) -> None:
    run = RunStore(tmp_path, clock=lambda: NOON_NS, entropy=lambda: "7f3a").new_run("compare")
    assert run.id == "c-20261115-143012-7f3a"
    assert run.folder == tmp_path / "runs" / run.id
    assert run.folder.is_dir()


def test_a_taken_id_is_drawn_again(tmp_path: Path) -> None:
    draws = iter(["7f3a", "7f3a", "0001"])
    store = RunStore(tmp_path, clock=lambda: NOON_NS, entropy=lambda: next(draws))
    assert [store.new_run("compare").id[-4:], store.new_run("compare").id[-4:]] == ["7f3a", "0001"]


def test_running_out_of_ids_is_an_error_not_a_loop(tmp_path: Path) -> None:
    store = RunStore(tmp_path, clock=lambda: NOON_NS, entropy=lambda: "7f3a")
    store.new_run("compare")
    with pytest.raises(TracksideError, match="no free run id"):
        store.new_run("compare")


def test_two_processes_at_once_never_share_an_id(tmp_path: Path) -> None:
    # 16 possible ids a second instead of 65536, so that both processes draw the same again and again.
    program = (
        "import secrets, sys; from pathlib import Path; from trackside.store.runs import RunStore\n"
        "store = RunStore(Path(sys.argv[1]), entropy=lambda: '000' + secrets.token_hex(1)[0])\n"
        "made = 0\n"
        "while made < 20:\n"
        "    try:\n"
        "        print(store.new_run('compare').id); made += 1\n"
        "    except Exception as error:\n"
        "        assert 'no free run id' in str(error), error\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    ids = [line for process in processes for line in process.communicate(timeout=60)[0].split()]
    assert len(ids) == len(set(ids)) == 40


def test_the_root_is_trackside_home_or_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACKSIDE_HOME", raising=False)
    assert RunStore().root == tmp_path / ".trackside"
    monkeypatch.setenv("TRACKSIDE_HOME", str(tmp_path / "elsewhere"))
    assert RunStore().root == tmp_path / "elsewhere"


def test_a_store_whose_place_cannot_be_told_is_a_store_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKSIDE_HOME", "~nobody-has-this-name/runs")
    with pytest.raises(TracksideError, match="~nobody-has-this-name/runs: there is no home") as caught:
        RunStore()
    assert (caught.value.kind, caught.value.remedy) == ("store", "set TRACKSIDE_HOME to an absolute path")
    monkeypatch.delenv("TRACKSIDE_HOME")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(TracksideError, match=r"\.trackside: there is no working directory") as caught:
        RunStore()
    assert (caught.value.kind, caught.value.remedy) == ("store", "set TRACKSIDE_HOME to an absolute path")
    assert RunStore(tmp_path).root == tmp_path


def test_looking_creates_nothing(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "store")
    assert store.list() == []
    assert not store.root.exists()


def test_git_does_not_see_the_store(store: RunStore) -> None:
    store.new_run("compare")
    assert (store.root / ".gitignore").read_text() == "*\n"


def test_a_folder_that_was_there_before_is_not_hidden_from_git(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.new_run("compare")
    assert [child.name for child in tmp_path.iterdir()] == ["runs"]


def test_a_record_reads_back_with_its_digest(store: RunStore) -> None:
    run = store.new_run("compare")
    path = store.write_record(run, {"verdict": "faster", "times": np.array([1.5, 2.5])})
    assert store.load(run.id) == {"verdict": "faster", "times": [1.5, 2.5]}
    assert store.record_sha256(run.id) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert sorted(child.name for child in run.folder.iterdir()) == ["record.json", "run.json"]


def test_a_final_record_is_never_overwritten(store: RunStore) -> None:
    run = store.new_run("compare")
    store.write_record(run, {"verdict": "faster"})
    with pytest.raises(TracksideError, match=f"will not overwrite the record of run {run.id}") as caught:
        store.write_record(run, {"verdict": "slower"})
    assert caught.value.kind == "store"
    assert store.load(run.id) == {"verdict": "faster"}


def test_a_running_record_is_replaced_by_the_final_one_once(store: RunStore) -> None:
    run = store.new_run("compare")
    store.write_record(run, {"status": "running"})
    with pytest.raises(TracksideError):
        store.write_record(run, {"status": "running"})
    store.write_record(run, {"status": "done"})
    with pytest.raises(TracksideError):
        store.write_record(run, {"status": "failed"})
    assert store.load(run.id) == {"status": "done"}


def test_a_record_that_json_cannot_hold_leaves_nothing_behind(store: RunStore) -> None:
    run = store.new_run("compare")
    with pytest.raises(TypeError):
        store.write_record(run, {"verdict": object()})
    assert [child.name for child in run.folder.iterdir()] == ["run.json"]


def test_a_leftover_of_a_killed_writer_is_swept_up(store: RunStore) -> None:
    run = store.new_run("compare")
    (run.folder / ".record.json.123-abcd.tmp").write_text('{"verd')
    store.write_record(run, {"verdict": "faster"})
    assert sorted(child.name for child in run.folder.iterdir()) == ["record.json", "run.json"]


def test_a_prefix_finds_the_one_run_it_fits(tmp_path: Path) -> None:
    draws = iter(["aa00", "ab00"])
    store = RunStore(tmp_path, clock=lambda: NOON_NS, entropy=lambda: next(draws))
    runs = [store.new_run("compare") for _ in range(2)]
    assert store.resolve("c-20261115-143012-aa") == runs[0].id
    assert store.resolve(runs[1].id) == runs[1].id
    with pytest.raises(TracksideError, match=r"2 runs start with 'c-2026': c-.*aa00, c-.*ab00") as caught:
        store.resolve("c-2026")
    assert caught.value.kind == "not-found"


@pytest.mark.parametrize("reference", ["", "x", "../runs", "/etc/passwd", "c-20261115-143012-zzzz"])
def test_a_reference_that_fits_nothing_is_not_found(store: RunStore, reference: str) -> None:
    store.new_run("compare")
    with pytest.raises(TracksideError, match="no run") as caught:
        store.resolve(reference)
    assert caught.value.kind == "not-found"


def test_an_empty_store_says_where_it_looked(store: RunStore) -> None:
    with pytest.raises(TracksideError, match=f"no runs in {store.root}"):
        store.load("last")


def test_last_is_the_newest_even_within_one_second(store: RunStore) -> None:
    for number in range(5):
        store.write_record(store.new_run("compare"), {"number": number})
    assert store.load("last") == {"number": 4}


def test_a_run_without_a_record_is_not_found_with_the_reason(store: RunStore) -> None:
    store.new_run("compare")
    with pytest.raises(TracksideError, match=f"process {os.getpid()} is at work") as caught:
        store.load("last")
    assert caught.value.kind == "not-found"


def test_runs_are_listed_newest_first_with_their_verdict(store: RunStore) -> None:
    older, newer = store.new_run("compare"), store.new_run("selfcheck")
    store.write_record(older, {"verdict": "faster", "certified": True})
    store.write_record(newer, {"status": "failed"})
    first, second = store.list()
    assert (first.id, first.verb, first.state, first.verdict) == (newer.id, "selfcheck", "failed", None)
    assert (second.id, second.verdict, second.certified, second.reason) == (older.id, "faster", True, None)
    assert second.started == "2026-11-15T14:30:12+00:00"


def test_a_listing_is_narrowed_by_verb_and_limit(store: RunStore) -> None:
    for verb in ("compare", "selfcheck", "compare", "compare"):
        store.new_run(verb)
    assert len(store.list()) == store.count() == 4
    assert len(store.list(verb="compare", limit=2)) == 2
    assert store.count(verb="compare") == 3


def test_a_broken_record_is_listed_as_unreadable(store: RunStore) -> None:
    run = store.new_run("compare")
    (run.folder / "record.json").write_text('{"verdict": "fas')
    (summary,) = store.list()
    assert (summary.state, summary.verb) == ("unreadable", "compare")
    assert "record.json" in (summary.reason or "")
    with pytest.raises(TracksideError, match="cannot read") as caught:
        store.load(run.id)
    assert caught.value.kind == "store"


def test_a_broken_start_file_hides_neither_run_nor_record(store: RunStore) -> None:
    run = store.new_run("compare")
    (run.folder / "run.json").write_text("[]")
    assert [(summary.id, summary.state) for summary in store.list()] == [(run.id, "unreadable")]
    store.write_record(run, {"schema": "trackside.compare/1", "verdict": "faster"})
    assert [(summary.verb, summary.state) for summary in store.list()] == [("compare", "done")]


@pytest.mark.parametrize("started_ns", [10**30, -(10**30), -1])
def test_an_absurd_start_time_spoils_neither_the_listing_nor_the_order(
    store: RunStore, started_ns: int
) -> None:
    broken, newer = store.new_run("compare"), store.new_run("compare")
    start = json.loads((broken.folder / "run.json").read_text())
    (broken.folder / "run.json").write_text(json.dumps(start | {"started_ns": started_ns}))
    first, second = store.list()
    assert (first.id, second.id, second.state) == (newer.id, broken.id, "unreadable")
    assert second.started == "2026-11-15T14:30:12+00:00"
    assert "started_ns" in (second.reason or "")


def test_a_folder_killed_before_its_first_write_is_listed_as_died(store: RunStore) -> None:
    (store.root / "runs" / "c-20250101-000000-0000").mkdir(parents=True)
    (summary,) = store.list()
    assert (summary.state, summary.verb, summary.started) == ("died", "unknown", "2025-01-01T00:00:00+00:00")


def test_a_live_run_is_running_and_a_killed_one_died(store: RunStore) -> None:
    program = (
        "import sys; from pathlib import Path; from trackside.store.runs import RunStore\n"
        "store = RunStore(Path(sys.argv[1])); run = store.new_run('compare')\n"
        "store.write_record(run, {'status': 'running'}); print('ready', flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(store.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        assert process.stdout.readline() == b"ready\n"
        assert [summary.state for summary in store.list()] == ["running"]
        process.kill()
        # Not yet reaped, so the number still exists; a zombie is not at work.
        process.stdout.read()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert [summary.state for summary in store.list()] == ["died"]
        process.wait()
    assert [summary.state for summary in store.list()] == ["died"]
    assert f"process {process.pid} ended" in (store.list()[0].reason or "")


def test_a_process_whose_name_is_not_utf8_has_runs_like_any_other(store: RunStore) -> None:
    # Any bytes go; and the kernel cuts names after 15 of them, also in the middle of a letter.
    program = (
        "import sys; from pathlib import Path; from trackside.store.runs import RunStore\n"
        "Path('/proc/self/comm').write_bytes(b'caf\\xe9')\n"
        "RunStore(Path(sys.argv[1])).new_run('compare'); print('ready', flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(store.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert [summary.state for summary in store.list()] == ["running"]


def test_a_later_process_with_the_same_number_is_not_taken_for_the_run(store: RunStore) -> None:
    run = store.new_run("compare")
    start = json.loads((run.folder / "run.json").read_text())
    start["process"] = start["process"].rpartition(":")[0] + ":1"
    (run.folder / "run.json").write_text(json.dumps(start))
    assert store.list()[0].state == "died"


def test_a_run_of_another_host_is_not_declared_dead(store: RunStore) -> None:
    run = store.new_run("compare")
    start = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps(start | {"host": "elsewhere", "pid": 2**22}))
    summary = store.list()[0]
    assert summary.state == "running"
    assert "elsewhere" in (summary.reason or "")


def _kill_delays() -> Iterator[float]:
    """Spread over the writer's first fifth of a second; the child spends about 10 ms a run."""
    return (0.2 * step / 12 for step in range(12))


def test_a_kill_at_any_moment_leaves_whole_records_only(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from trackside.store.runs import RunStore\n"
        "store = RunStore(Path(sys.argv[1])); filler = list(range(200_000))\n"
        "while True:\n"
        "    run = store.new_run('compare')\n"
        "    store.write_record(run, {'status': 'running', 'filler': filler})\n"
        "    store.write_record(run, {'status': 'done', 'filler': filler}); print('done', flush=True)\n"
    )
    store = RunStore(tmp_path)
    for delay in _kill_delays():
        process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout:
            # One run is whole, however slow the disk; the kill hits a later one.
            assert process.stdout.readline() == b"done\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(delay)
            process.send_signal(signal.SIGKILL)
            process.wait()
    summaries = store.list()
    assert {summary.state for summary in summaries} <= {"done", "died"}
    assert sum(summary.state == "done" for summary in summaries) >= len(list(_kill_delays()))
    for summary in summaries:
        if summary.state == "done":
            assert len(store.load(summary.id)["filler"]) == 200_000


def test_a_file_in_the_place_of_the_root_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    store = RunStore(tmp_path / "store")
    with pytest.raises(TracksideError, match="cannot create a run") as caught:
        store.new_run("compare")
    assert caught.value.kind == "store"
    with pytest.raises(TracksideError, match="cannot read"):
        store.list()


def test_a_full_disk_keeps_the_record_that_was_there(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.new_run("compare")
    store.write_record(run, {"status": "running"})

    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(TracksideError, match="No space left"):
        store.write_record(run, {"status": "done"})
    assert store.load(run.id) == {"status": "running"}
    assert not list(run.folder.glob(".record*"))


def test_a_run_that_a_full_disk_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    # Under this limit a folder can be made and no byte be written, as on a full disk.
    program = (
        "import resource, sys; from pathlib import Path; from trackside.store.runs import RunStore\n"
        "store = RunStore(Path(sys.argv[1]))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))\n"
        "print(store.new_run_if_possible('machine'))\n"
    )

    def refused(root: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-c", program, str(root)], capture_output=True, text=True, check=True
        )
        assert done.stdout == "None\n"

    old, new = RunStore(tmp_path / "old"), tmp_path / "new"
    first = old.new_run("machine")
    refused(old.root)
    assert [run.id for run in old.list()] == [first.id]
    refused(new)
    assert not new.exists()
    RunStore(new).new_run("machine")
    assert (new / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOSPC, "free some space there, or"),
        (errno.EROFS, "make it writable for you, or"),
        (errno.ENOTDIR, "see that all of its path up to there are folders, or"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EIO, "a sound disk"),
    ],
)
def test_the_remedy_is_for_what_was_refused(number: int, told: str) -> None:
    for elsewhere in ({}, {"elsewhere": "give another --out"}):
        with pytest.raises(TracksideError) as caught, store_errors(Path("place"), "write", **elsewhere):
            raise OSError(number, os.strerror(number))
        assert told in caught.value.remedy
        assert caught.value.remedy.endswith(
            elsewhere.get("elsewhere", "set TRACKSIDE_HOME to another folder")
        )
        assert caught.value.message == f"cannot write place: {os.strerror(number)}"


def test_a_run_without_a_record_says_which_file_to_restore(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "store")
    run = store.new_run("lap")
    with pytest.raises(TracksideError, match="has no record") as caught:
        store.load(run.id)
    assert f"restore {run.folder / 'record.json'} from a copy" in caught.value.remedy
