"""Retention: what the rules take, what they never take, and that a removal is whole or did not happen."""

import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from trackside.records.errors import TracksideError
from trackside.store.files import folder_lock
from trackside.store.retention import Removal, Retention, chosen, folder_bytes, named, remove
from trackside.store.runs import Run, RunStore

# 2026-11-15 14:30:12 UTC
NOON_NS = 1_794_753_012_000_000_000
DAY_NS = 86_400 * 10**9


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """A run a day; the clock is the test's."""
    days = count(NOON_NS, DAY_NS)
    return RunStore(tmp_path / "store", clock=lambda: next(days))


def write(store: RunStore, size: int = 1000) -> Run:
    run = store.new_run("lap")
    store.write_record(run, {"schema": "trackside.lap/1"})
    (run.folder / "trace").write_bytes(bytes(size - folder_bytes(run.folder)))
    return run


def ids(removals: list[Removal]) -> list[str]:
    return [removal.run.id for removal in removals]


def test_rules_take_the_oldest_first(store: RunStore) -> None:
    runs = [write(store).id for _ in range(6)]
    assert ids(chosen(store, Retention(before_ns=NOON_NS + 2 * DAY_NS))) == runs[:2]
    assert ids(chosen(store, Retention(keep_last=4))) == runs[:2]
    assert ids(chosen(store, Retention(most_bytes=2500))) == runs[:4]
    assert ids(chosen(store, Retention(most_bytes=6000))) == []
    assert ids(chosen(store, Retention(most_bytes=0))) == runs


def test_rules_together_take_what_either_takes_and_never_one_of_the_last(store: RunStore) -> None:
    runs = [write(store).id for _ in range(6)]
    old = NOON_NS + 2 * DAY_NS
    assert ids(chosen(store, Retention(before_ns=old, most_bytes=1500))) == runs[:5]
    assert ids(chosen(store, Retention(before_ns=old, most_bytes=1500, keep_last=3))) == runs[:3]
    assert ids(chosen(store, Retention(before_ns=old, keep_last=5))) == runs[:1]
    assert ids(chosen(store, Retention(keep_last=6))) == []


def test_a_removal_frees_what_it_says_and_leaves_nothing_behind(store: RunStore) -> None:
    runs = [write(store, size=5000) for _ in range(3)]
    before = folder_bytes(store.runs)
    done = remove(store, chosen(store, Retention(keep_last=1)))
    assert sum(removal.bytes for removal in done) == before - folder_bytes(store.runs) == 10_000
    assert [child.name for child in store.runs.iterdir()] == [runs[2].id]
    assert [run.id for run in store.list()] == [runs[2].id]


@pytest.mark.parametrize("linked", [False, True])
def test_a_file_with_the_name_of_a_run_is_listed_as_that_and_can_be_removed(
    store: RunStore, tmp_path: Path, linked: bool
) -> None:
    run = write(store)
    target = tmp_path / "target" if linked else store.runs / "c-20261115-143012-7f3a"
    target.write_text("no run")
    stray = store.runs / "c-20261115-143012-7f3a"
    if linked:
        stray.symlink_to(target)
    (listed,) = (one for one in store.list() if one.id == stray.name)
    assert (listed.state, listed.reason) == ("unreadable", f"{stray} is a file, and a run is a folder")
    with pytest.raises(TracksideError, match="is a file, and a run is a folder"):
        store.load(stray.name)
    (removal,) = remove(store, named(store, [stray.name]))
    assert removal.bytes == (len(str(target)) if linked else len("no run"))
    assert [child.name for child in store.runs.iterdir()] == [run.id]
    assert target.exists() == linked


def test_a_running_run_is_never_removed(store: RunStore) -> None:
    write(store)
    running = store.new_run("compare")
    with pytest.raises(TracksideError, match=f"will not remove run {running.id}: process") as caught:
        named(store, [running.id])
    assert caught.value.kind == "busy"
    remove(store, chosen(store, Retention(most_bytes=0)))
    assert [run.id for run in store.list()] == [running.id]


def test_a_run_of_another_host_that_may_be_running_stays(store: RunStore) -> None:
    run = store.new_run("lap")
    start = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps(start | {"host": "elsewhere"}))
    assert chosen(store, Retention(keep_last=0)) == []


def test_a_run_that_began_to_run_after_it_was_chosen_stays(store: RunStore) -> None:
    run = write(store)
    removals = chosen(store, Retention(keep_last=0))
    # As if another process had put it there in between.
    (run.folder / "record.json").unlink()
    assert remove(store, removals) == []
    assert run.folder.exists()


def test_a_folder_that_was_made_just_now_may_be_a_run_that_begins(store: RunStore) -> None:
    folder = store.runs / "c-20261115-143012-7f3a"
    folder.mkdir(parents=True)
    with pytest.raises(TracksideError, match="it may just have begun"):
        named(store, [folder.name])
    assert chosen(store, Retention(keep_last=0)) == []
    os.utime(folder, (0, 0))
    assert ids(remove(store, chosen(store, Retention(keep_last=0)))) == [folder.name]


def test_what_died_is_unreadable_or_newer_can_be_removed(store: RunStore) -> None:
    unreadable, newer, folder = write(store), write(store), store.runs / "c-20250101-000000-0000"
    (unreadable.folder / "record.json").write_text("{")
    (newer.folder / "record.json").write_text('{"schema": "trackside.compare/99"}')
    folder.mkdir()
    os.utime(folder, (0, 0))
    assert sorted(run.state for run in store.list()) == ["died", "newer", "unreadable"]
    assert len(remove(store, named(store, [unreadable.id, newer.id, folder.name, newer.id]))) == 3
    assert store.list() == []


def test_what_a_killed_removal_left_is_no_run_and_swept_up_by_the_next(store: RunStore) -> None:
    run = write(store)
    aside = store.runs / f".removed-{run.id}-abcd"
    run.folder.rename(aside)
    assert store.list() == []
    remove(store, [])
    assert not aside.exists()


def test_two_processes_that_remove_the_same_runs_both_succeed(store: RunStore) -> None:
    for _ in range(60):
        write(store)
    program = (
        "import sys; from pathlib import Path; from trackside.store.runs import RunStore\n"
        "from trackside.store.retention import Retention, chosen, remove\n"
        "store = RunStore(Path(sys.argv[1])); removals = chosen(store, Retention(keep_last=10))\n"
        "print('ready', flush=True); sys.stdin.readline(); print(len(remove(store, removals)))\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(store.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    removed = [int(process.communicate("\n", timeout=60)[0]) for process in started]
    assert sum(removed) == 50
    assert len(store.list()) == 10


def test_a_run_in_whose_folder_someone_writes_stays(store: RunStore) -> None:
    run = write(store)
    with folder_lock(run.folder):
        assert remove(store, named(store, [run.id])) == []
    assert len(remove(store, named(store, [run.id]))) == 1


def test_what_a_link_in_the_place_of_a_run_leads_to_is_not_deleted(store: RunStore, tmp_path: Path) -> None:
    run = write(store)
    run.folder.rename(tmp_path / "moved")
    run.folder.symlink_to(tmp_path / "moved")
    assert len(remove(store, named(store, [run.id]))) == 1
    assert list(store.runs.iterdir()) == []
    assert (tmp_path / "moved" / "record.json").exists()


def test_a_run_that_was_started_after_a_young_one_is_not_old_whatever_its_clock_said(tmp_path: Path) -> None:
    now = NOON_NS + 40 * DAY_NS
    # An old one, a young one, and the last with a clock that was set back by a month.
    starts = iter([NOON_NS, now - DAY_NS, now - 35 * DAY_NS])
    store = RunStore(tmp_path / "store", clock=lambda: next(starts))
    runs = [write(store).id for _ in range(3)]
    assert store.resolve("last") == runs[2]
    old = Retention(before_ns=now - 7 * DAY_NS)
    assert ids(chosen(store, old, lambda: now)) == runs[:1]


def test_a_run_with_a_clock_that_was_ahead_does_not_keep_the_old_ones_after_it(tmp_path: Path) -> None:
    now = NOON_NS + 40 * DAY_NS
    starts = iter([now + 900 * DAY_NS, NOON_NS, now - DAY_NS])
    store = RunStore(tmp_path / "store", clock=lambda: next(starts))
    runs = [write(store).id for _ in range(3)]
    old = Retention(before_ns=now - 7 * DAY_NS)
    assert ids(chosen(store, old, lambda: now)) == [runs[1]]
