"""The index: it says what the files say, whatever happens to it, to them or to the disk."""

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from trackside.store import index
from trackside.store.entry import Entry, read_entry
from trackside.store.index import FILE_NAME
from trackside.store.runs import RunStore, RunSummary
from trackside.store.selection import RunFilter

# 2026-11-15 14:30:12 UTC
NOON_NS = 1_794_753_012_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """Five finished runs, one that died and one under way; the index is made."""
    ticks = count(NOON_NS, 1_000_000)
    store = RunStore(tmp_path / "store", clock=lambda: next(ticks))
    for number in range(5):
        write(store, number)
    (store.runs / "c-20250101-000000-0000").mkdir()
    store.new_run("selfcheck")
    store.list()
    assert (store.root / FILE_NAME).exists()
    return store


def write(store: RunStore, number: int = 0) -> str:
    run = store.new_run("compare")
    record = {"schema": "trackside.compare/1", "verdict": "faster", "certified": number % 2 == 0}
    store.write_record(run, record | {"filler": "x" * 500 * number})
    return run.id


def by_files(store: RunStore) -> list[RunSummary]:
    """What the files alone say, in the order of the list."""
    entries = [read_entry(folder) for folder in store.runs.iterdir() if not folder.name.startswith(".")]
    ordered = sorted((e for e in entries if e), key=lambda entry: (entry.order_ns, entry.id), reverse=True)
    return [entry.summary(store.runs) for entry in ordered]


def listed(store: RunStore) -> list[RunSummary]:
    """What another process would list."""
    return RunStore(store.root).list()


def test_final_records_are_not_read_again(store: RunStore) -> None:
    program = (
        "import sys; from pathlib import Path; from trackside.store import index\n"
        "from trackside.store.runs import RunStore; read = []\n"
        "entry = index.read_entry\n"
        "index.read_entry = lambda folder: (read.append(folder.name), entry(folder))[1]\n"
        "print(len(RunStore(Path(sys.argv[1])).list()), *sorted(read))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(store.root)], capture_output=True, text=True, check=True
    )
    running = next(run.id for run in store.list() if run.state == "running")
    assert done.stdout.split() == ["7", "c-20250101-000000-0000", running]


def test_the_index_is_in_wal_mode_and_says_what_the_files_say(store: RunStore) -> None:
    connection = sqlite3.connect(store.root / FILE_NAME)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("SELECT count(*) FROM runs").fetchone() == (5,)
    connection.close()
    assert listed(store) == by_files(store)
    assert {type(run.certified) for run in listed(store)} == {bool, type(None)}


def test_a_deleted_index_is_made_again(store: RunStore) -> None:
    before = listed(store)
    for path in store.root.glob(f"{FILE_NAME}*"):
        path.unlink()
    again = RunStore(store.root)
    assert (again.list(), again.remarks) == (before, [])
    assert (store.root / FILE_NAME).exists()


def test_what_others_wrote_and_removed_since_is_seen(store: RunStore) -> None:
    first = listed(store)
    written = write(RunStore(store.root))
    shutil.rmtree(first[-2].folder)
    assert listed(store) == by_files(store)
    assert written in {run.id for run in listed(store)}
    assert first[-2].id not in {run.id for run in listed(store)}


def test_a_running_record_that_is_replaced_is_read_again(store: RunStore) -> None:
    run = store.new_run("compare")
    store.write_record(run, {"status": "running"})
    assert listed(store)[0].state == "running"
    store.write_record(run, {"status": "failed", "verdict": "rejected"})
    assert (listed(store)[0].state, listed(store)[0].verdict) == ("failed", "rejected")


def test_a_record_that_was_edited_or_deleted_is_listed_as_it_is_now(store: RunStore) -> None:
    edited, deleted, broken, startless, *_ = (run for run in listed(store) if run.state == "done")
    record = json.loads((edited.folder / "record.json").read_text())
    (edited.folder / "record.json").write_text(json.dumps(record | {"verdict": "slower"}))
    (deleted.folder / "record.json").unlink()
    (broken.folder / "record.json").write_text("{")
    (startless.folder / "run.json").unlink()
    now = {run.id: run for run in listed(store)}
    assert now[edited.id].verdict == "slower"
    # The test's own process began it and is alive.
    assert (now[deleted.id].state, now[deleted.id].verdict) == ("running", None)
    assert now[broken.id].state == "unreadable"
    assert (now[startless.id].state, now[startless.id].verb) == ("done", "compare")


def test_a_deleted_record_of_a_process_that_ended_is_no_final_record(store: RunStore) -> None:
    program = (
        "import sys; from pathlib import Path; from trackside.store.runs import RunStore\n"
        "store = RunStore(Path(sys.argv[1])); run = store.new_run('lap')\n"
        "store.write_record(run, {'schema': 'trackside.lap/1'}); print(run.id)\n"
    )
    command = [sys.executable, "-c", program, str(store.root)]
    run_id = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    find = lambda: next(run for run in listed(store) if run.id == run_id)  # noqa: E731
    assert find().state == "done"
    (store.runs / run_id / "record.json").unlink()
    assert find().state == "died"
    assert "there is no final record" in (find().reason or "")


@pytest.mark.parametrize(
    "damage",
    ["garbage", "cut", "zeroed", "empty tables", "wrong values", "other letters", "bytes", "foreign"],
)
def test_a_damaged_index_is_kept_aside_and_made_again(store: RunStore, damage: str) -> None:
    path = store.root / FILE_NAME
    whole = path.read_bytes()
    if damage == "garbage":
        path.write_bytes(b"not a database" * 1000)
    elif damage == "cut":
        path.write_bytes(whole[: len(whole) - 5000])
    elif damage == "zeroed":
        path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    else:
        connection = sqlite3.connect(path, isolation_level=None)
        if damage == "empty tables":
            connection.execute("DROP TABLE runs")
        elif damage == "wrong values":
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.execute("UPDATE runs SET started_ns = 'noon' WHERE verdict = 'faster'")
        elif damage == "other letters":
            connection.execute("UPDATE runs SET verdict = 'slower'")
        elif damage == "bytes":
            connection.execute("UPDATE runs SET verdict = x'ff00'")
        else:
            connection.execute("PRAGMA application_id = 1")
        connection.close()
    found = RunStore(store.root)
    assert found.list() == by_files(store)
    (remark,) = found.remarks
    (aside,) = (child for child in store.root.glob(f"{FILE_NAME}.corrupt-*") if child.name[-4] != "-")
    assert f"it is kept as {aside}" in remark
    assert "no run is lost" in remark
    again = RunStore(store.root)
    assert (again.list(), again.remarks) == (by_files(store), [])


def test_bytes_that_flip_anywhere_in_the_index_neither_stop_nor_falsify_a_list(store: RunStore) -> None:
    path, chance = store.root / FILE_NAME, random.Random(5)
    whole = path.read_bytes()
    truth = by_files(store)
    noticed = 0
    for _ in range(60):
        broken = bytearray(whole)
        place = chance.randrange(len(broken))
        broken[place : place + 64] = chance.randbytes(64)
        path.write_bytes(broken[: len(whole)])
        found = RunStore(store.root)
        assert found.list() == truth
        noticed += bool(found.remarks)
    assert noticed > 5


def test_an_index_of_a_newer_release_is_left_alone(store: RunStore) -> None:
    connection = sqlite3.connect(store.root / FILE_NAME)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = (store.root / FILE_NAME).read_bytes()
    found = RunStore(store.root)
    assert found.list() == by_files(store)
    found.list()
    (remark,) = found.remarks
    assert "of a newer Trackside (version 99" in remark
    assert (store.root / FILE_NAME).read_bytes() == before


def test_an_index_of_an_older_release_is_made_anew(store: RunStore) -> None:
    connection = sqlite3.connect(store.root / FILE_NAME)
    connection.executescript("DROP TABLE runs; CREATE TABLE runs (id TEXT); PRAGMA user_version = 0")
    connection.close()
    found = RunStore(store.root)
    assert (found.list(), found.remarks) == (by_files(store), [])
    connection = sqlite3.connect(store.root / FILE_NAME)
    assert connection.execute("SELECT count(*) FROM runs").fetchone() == (5,)
    connection.close()


def test_an_index_that_another_process_holds_does_not_stop_a_list(store: RunStore) -> None:
    holder = sqlite3.connect(store.root / FILE_NAME, isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    holder.execute("DELETE FROM runs")
    write(store)
    found = RunStore(store.root)
    assert found.list() == by_files(store)
    assert "locked" in found.remarks[0]
    holder.execute("ROLLBACK")
    holder.close()


def test_a_write_transaction_elsewhere_is_not_worth_a_remark(store: RunStore) -> None:
    holder = sqlite3.connect(store.root / FILE_NAME, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    write(store)
    found = RunStore(store.root)
    assert (found.list(), found.remarks) == (by_files(store), [])
    holder.close()


@pytest.mark.parametrize("with_index", [True, False])
def test_a_store_that_cannot_be_written_is_listed(store: RunStore, with_index: bool) -> None:
    if not with_index:
        (store.root / FILE_NAME).unlink()
    # Root may write anywhere but on a file system that is mounted read-only.
    mounted = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    program = (
        "import sys; from pathlib import Path; from trackside.store.runs import RunStore\n"
        "store = RunStore(Path(sys.argv[1])); print(len(store.list())); print(store.resolve('last'))\n"
        "print(*store.remarks)\n"
    )
    command = ["unshare", "-rm", "sh", "-c", mounted, str(store.root)]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a mount of its own: unshare -rm is not allowed here")
    done = subprocess.run(
        [*command, sys.executable, "-c", program, str(store.root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    number, last, remark = done.stdout.splitlines()
    assert (number, last) == ("7", store.resolve("last"))
    assert with_index or "the runs' own files are read instead" in remark


def test_a_record_of_a_newer_release_is_listed_as_such_and_not_read(store: RunStore) -> None:
    run = store.new_run("compare")
    store.write_record(run, {"schema": "trackside.compare/2", "verdict": {"faster": 0.9}, "certified": True})
    for _ in range(2):
        newest = listed(store)[0]
        assert (newest.id, newest.state, newest.verdict, newest.certified) == (run.id, "newer", None, None)
        assert "trackside.compare/2" in (newest.reason or "")
    with pytest.raises(Exception, match="newer Trackside wrote"):
        store.load("last")


def test_a_root_with_a_name_that_is_no_text_has_an_index(tmp_path: Path) -> None:
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff ?#%41"))
    store = RunStore(root)
    write(store)
    assert len(store.list()) == 1
    assert (root / FILE_NAME).exists()
    assert (RunStore(root).list(), store.remarks) == (by_files(store), [])


def test_a_time_of_change_that_sqlite_has_no_number_for_is_kept_all_the_same(store: RunStore) -> None:
    record = store.list()[1].folder / "record.json"
    os.utime(record, ns=(2**63 + 5, 2**63 + 5))
    if record.stat().st_mtime_ns < 2**63:
        pytest.skip("this file system has no times after 2262")
    for _ in range(2):
        found = RunStore(store.root)
        assert (found.list(), found.remarks) == (by_files(store), [])


def test_a_python_without_sqlite_lists_runs_and_says_why_it_takes_longer(store: RunStore) -> None:
    program = (
        "import sys; sys.modules['sqlite3'] = None; from pathlib import Path\n"
        "from trackside.store.runs import RunStore; store = RunStore(Path(sys.argv[1]))\n"
        "print(len(store.list()), *store.remarks)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(store.root)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("7 there is no index (")


def test_a_run_of_after_2262_is_listed_though_sqlite_has_no_number_for_it(tmp_path: Path) -> None:
    store = RunStore(tmp_path, clock=lambda: 10**19)
    write(store)
    assert (store.list()[0].started[:4], store.remarks) == ("2286", [])


def test_threads_that_list_at_once_read_each_record_once(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store.root / FILE_NAME).unlink()
    read: list[str] = []
    never = threading.Event()

    def slowly(folder: Path) -> Entry | None:
        read.append(folder.name)
        never.wait(0.05)
        return read_entry(folder)

    monkeypatch.setattr(index, "read_entry", slowly)
    with ThreadPoolExecutor(4) as pool:
        lists = [*pool.map(lambda _: store.list(), range(4))]
    assert all(one == lists[0] for one in lists)
    finished = [run.id for run in lists[0] if run.state == "done"]
    assert [read.count(run_id) for run_id in finished] == [1] * 5


def test_a_short_list_shows_its_runs_as_they_are_now_and_counts_all(store: RunStore) -> None:
    newest, *_, oldest = (run.id for run in store.list(verb="compare") if run.state == "done")
    for run_id in (newest, oldest):
        record = json.loads((store.runs / run_id / "record.json").read_text())
        (store.runs / run_id / "record.json").write_text(json.dumps(record | {"verdict": "slower"}))
    found = RunStore(store.root).find(RunFilter(), 2)
    assert found.total == 7
    assert [(run.id, run.verdict) for run in found.runs][1] == (newest, "slower")
    # What was not shown is looked at when it is, or when a filter may choose it.
    assert [run.id for run in RunStore(store.root).find(RunFilter(verdict="slower"), 5).runs] == [
        newest,
        oldest,
    ]


def test_last_is_never_a_run_that_is_gone(store: RunStore) -> None:
    for run in store.list()[:-1]:
        assert store.resolve("last") == run.id
        shutil.rmtree(run.folder)
