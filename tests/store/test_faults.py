"""What is finished stays whole: under SIGKILL inside writes, on a full disk, among several processes."""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trackside.store.index import FILE_NAME
from trackside.store.runs import RunStore

HERE = Path(__file__).parent


def _kill_writers(folder: Path, kills: int, seed: int) -> dict[str, dict[str, int]]:
    command = [sys.executable, str(HERE / "fault_driver.py"), str(folder), str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    print(f"\n{done.stdout.strip()}")
    assert told["kills"] == kills
    assert told["in_writes"] > 0, "no kill landed inside a write: nothing was tested"
    assert told["leftovers"] == []
    landed: dict[str, dict[str, int]] = told
    return landed


def test_a_kill_inside_a_write_loses_no_finished_run(tmp_path: Path) -> None:
    _kill_writers(tmp_path, 36, seed=20261118)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_five_hundred_kills_inside_every_kind_of_write_lose_no_finished_run(tmp_path: Path) -> None:
    landed = _kill_writers(tmp_path, 700, seed=int.from_bytes(os.urandom(4)))["landed"]
    for operation in ("new_run", "write_record", "index", "rm", "import", "export"):
        assert landed.get(operation, 0) > 0, f"no kill inside {operation}"
    assert sum(number for name, number in landed.items() if name not in ("none", "in a call")) >= 500


def _crowd(root: Path, processes: int, rounds: int, vandal: random.Random | None = None) -> int:
    """Lets several processes work on one store at once; returns how many operations they did in all."""
    program = [sys.executable, str(HERE / "crowd.py"), str(root), str(rounds)]
    more = ["remarks"] if vandal is not None else []
    started = [
        subprocess.Popen(
            [*program, str(seed), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for seed in range(processes)
    ]
    while vandal is not None and any(process.poll() is None for process in started):
        time.sleep(vandal.uniform(0.01, 0.1))
        _break_index(root, vandal)
    operations = kept = 0
    for process in started:
        out, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-3000:]
        operations += int(out.split()[0])
        kept += int(out.split()[1])
    RunStore(root).list()
    store = RunStore(root)
    assert [run.state for run in store.list()] == ["done"] * kept
    assert store.remarks == []
    print(f"\n{processes} processes, {operations} operations, {kept} runs kept")
    return operations


def test_two_processes_at_once_lose_nothing_of_each_other(tmp_path: Path) -> None:
    assert _crowd(tmp_path, 2, 40) >= 200


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_four_processes_at_once_lose_nothing_in_thousands_of_operations(tmp_path: Path) -> None:
    assert _crowd(tmp_path, 4, 400) >= 5000


def _break_index(root: Path, chance: random.Random) -> None:
    path = root / FILE_NAME
    with contextlib.suppress(FileNotFoundError):
        match chance.randrange(4):
            case 0:
                path.unlink()
            case 1:
                Path(f"{path}-wal").unlink()
            case 2:
                path.write_bytes(b"x" * 5000)
            case _:
                with path.open("r+b") as file:
                    file.seek(chance.randrange(path.stat().st_size + 1))
                    file.write(chance.randbytes(2000))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_index_that_is_broken_and_deleted_all_the_time_loses_and_hides_no_run(tmp_path: Path) -> None:
    assert _crowd(tmp_path, 3, 150, vandal=random.Random(20261118)) >= 1000
    aside = [path for path in tmp_path.glob(f"{FILE_NAME}.corrupt-*") if path.suffix != "-wal"]
    print(f"{len(aside)} broken ones were kept aside")
    assert aside


FULL = """
import sys
import time
from pathlib import Path
from trackside.records.errors import TracksideError
from trackside.store.archive import export_runs, import_runs
from trackside.store.retention import Retention, chosen, remove
from trackside.store.runs import RunStore

room, archive = Path(sys.argv[1]), Path(sys.argv[2])
store, finished, refused = RunStore(room / "store"), {}, 0
store.list()
while refused < 20:
    try:
        run = store.new_run("lap")
        store.write_record(run, {"schema": "trackside.lap/1", "filler": "x" * 30_000})
        finished[run.id] = store.record_sha256(run.id)
    except TracksideError as error:
        assert error.kind == "store" and "No space left" in error.message, error.message
        refused += 1
    listed = {one.id: one.state for one in store.list()}
    assert {run_id for run_id, state in listed.items() if state == "done"} == set(finished), listed
assert set(listed.values()) <= {"done", "running"}, listed
try:
    import_runs(store, archive)
except TracksideError as error:
    assert "No space left" in error.message, error.message
else:
    raise AssertionError("there was room for more")
assert not [path.name for path in store.runs.glob(".*")]
assert all(store.record_sha256(run_id) == digest for run_id, digest in finished.items())
gone = remove(RunStore(room / "store"), chosen(store, Retention(most_bytes=200_000)))
assert gone
after = RunStore(room / "store")
run = after.new_run("lap")
after.write_record(run, {"schema": "trackside.lap/1"})
assert after.load("last") == {"schema": "trackside.lap/1"}
import_runs(after, archive)
print(len(finished), refused, len(gone))
"""


def test_a_full_disk_loses_nothing_and_removing_makes_room_again(tmp_path: Path) -> None:
    room, archive = tmp_path / "room", tmp_path / "one.tar.gz"
    room.mkdir()
    mounted = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"']
    if (
        shutil.which("unshare") is None
        or subprocess.run([*mounted, str(room), "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs a tmpfs of its own: unshare -rm and mount are not allowed here")
    elsewhere = RunStore(tmp_path / "elsewhere")
    run = elsewhere.new_run("lap")
    # As large as a file can be that no packing makes small.
    elsewhere.write_record(run, {"schema": "trackside.lap/1", "filler": os.urandom(40_000).hex()})
    from trackside.store.archive import export_runs

    export_runs(elsewhere, [run.id], archive)
    done = subprocess.run(
        [*mounted, str(room), sys.executable, "-c", FULL, str(room), str(archive)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    finished, refused, removed = map(int, done.stdout.split())
    print(f"\n{finished} runs until the disk was full, {refused} refused, {removed} removed")
    assert finished > 5


def test_a_list_is_made_without_an_index_where_no_byte_can_be_written(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = store.new_run("lap")
    store.write_record(run, {"schema": "trackside.lap/1"})
    program = (
        "import resource, sys; from pathlib import Path; from trackside.store.runs import RunStore\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))\n"
        "store = RunStore(Path(sys.argv[1])); print(store.list()[0].id); print(*store.remarks)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0] == run.id
    assert "the runs' own files are read instead" in done.stdout
