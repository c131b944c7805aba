"""Kills writers of a store with SIGKILL, again and again, and looks after each kill whether all is whole.

A program of its own, since it forks its writers: `python fault_driver.py FOLDER KILLS SEED`. Prints what it
counted as one JSON document.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import random
import select
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trackside.store import index_file
from trackside.store.archive import export_runs, import_runs
from trackside.store.entry import read_entry
from trackside.store.retention import Retention, chosen, named, remove
from trackside.store.runs import RunStore

OPERATIONS = ("none", "new_run", "write_record", "index", "rm", "import", "export")
CALLS = ("fsync", "replace", "rename", "mkdir", "open", "rmdir", "unlink")
INSIDE_CALL = 1
MOST_RUNS = 60


def payload(random_: random.Random) -> dict[str, Any]:
    # Now and then one that the kernel takes in several pieces.
    filler = random_.randbytes(random_.choice((200, 5_000, 30_000, 400_000))).hex()
    return {
        "schema": "trackside.compare/1",
        "verdict": random_.choice(("faster", "slower")),
        "filler": filler,
        "sum": hashlib.sha256(filler.encode()).hexdigest(),
    }


class Writer:
    """The child: works on the store until it is killed, and says where it is."""

    def __init__(self, root: Path, archives: list[Path], where: mmap.mmap, pipe: int, seed: int) -> None:
        self.store = RunStore(root)
        self.archives = archives
        self.where = where
        self.pipe = pipe
        self.random = random.Random(seed)
        # Half of the writers end themselves at a certain call; the others are killed from outside, anywhere.
        self.calls_left = self.random.randrange(1, 150) if self.random.random() < 0.5 else -1

    def work(self) -> None:
        for name in CALLS:
            setattr(os, name, self._announced(getattr(os, name)))
        self._announce_sqlite()
        keep = index_file.IndexFile.write

        def kept(one: index_file.IndexFile, *arguments: Any) -> None:
            self._in("index", keep, one, *arguments)

        index_file.IndexFile.write = kept  # type: ignore[method-assign]
        while True:
            self.random.choice((self.write, self.write, self.list, self.rm, self.import_, self.export))()

    def write(self) -> None:
        run = self._in("new_run", self.store.new_run, "compare")
        if self.random.random() < 0.3:
            self._in("write_record", self.store.write_record, run, {"status": "running"})
        self._in("write_record", self.store.write_record, run, payload(self.random))
        self._tell("finished", run.id, self.store.record_sha256(run.id))

    def list(self) -> None:
        self.store.list()

    def rm(self) -> None:
        done = [run.id for run in self.store.list() if run.state == "done"]
        if done:
            run_id = self.random.choice(done)
            self._tell("removing", run_id)
            self._in("rm", remove, self.store, named(self.store, [run_id]))
            self._tell("removed", run_id)

    def import_(self) -> None:
        archive = self.random.choice(self.archives)
        self._tell("importing", archive.name)
        self._in("import", import_runs, self.store, archive)
        self._tell("imported", archive.name)

    def export(self) -> None:
        done = [run.id for run in self.store.list() if run.state == "done"]
        if done:
            out = self.store.root / "out.tar.gz"
            self._in("export", export_runs, self.store, done[:2], out, replace=True)

    def _in(self, operation: str, function: Callable[..., Any], *arguments: Any, **named_: Any) -> Any:
        self.where[0] = OPERATIONS.index(operation)
        try:
            return function(*arguments, **named_)
        finally:
            self.where[0] = 0

    def _announced(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def announced(*arguments: Any, **named_: Any) -> Any:
            self._point()
            self.where[1] = INSIDE_CALL
            try:
                return call(*arguments, **named_)
            finally:
                self.where[1] = 0
                self._point()

        return announced

    def _announce_sqlite(self) -> None:
        connect = sqlite3.connect

        def connected(*arguments: Any, **named_: Any) -> sqlite3.Connection:
            connection = connect(*arguments, **named_)
            # Called before each statement: between BEGIN and COMMIT too.
            connection.set_trace_callback(lambda statement: self._point())
            return connection

        sqlite3.connect = connected  # type: ignore[assignment]

    def _point(self) -> None:
        if self.where[0]:
            self.calls_left -= 1
            if self.calls_left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def _tell(self, *words: str) -> None:
        os.write(self.pipe, (" ".join(words) + "\n").encode())


class Driver:
    """The parent: starts writers, kills them, and holds the store against what they had finished."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.root = folder / "store"
        self.random = random.Random(seed)
        self.finished: dict[str, str] = {}
        self.doubtful: dict[str, str] = {}
        """What the killed one was about to remove or to import: there and whole, or not there."""
        self.archives: dict[str, dict[str, str]] = {}
        self.paths: list[Path] = []
        self.where = mmap.mmap(-1, mmap.PAGESIZE)
        self.landed: Counter[str] = Counter()
        self.checked = 0
        self._make_archives(folder)

    def _make_archives(self, folder: Path) -> None:
        store = RunStore(folder / "elsewhere")
        for number in range(3):
            runs = [store.new_run("compare") for _ in range(2)]
            for run in runs:
                store.write_record(run, payload(self.random))
            path = folder / f"{number}.tar.gz"
            export_runs(store, [run.id for run in runs], path)
            self.archives[path.name] = {run.id: store.record_sha256(run.id) for run in runs}
            self.paths.append(path)

    def kill_one(self) -> None:
        self.where[:2] = b"\0\0"
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                Writer(self.root, self.paths, self.where, writing, self.random.getrandbits(60)).work()
            except BaseException as error:
                os.write(writing, f"broken {error!r}\n".encode())
            os._exit(1)
        self.random.getrandbits(60)
        os.close(writing)
        poll = select.poll()
        poll.register(reading)
        told = b""
        deadline = time.monotonic() + self.random.uniform(0.0, 0.15)
        while (left := deadline - time.monotonic()) > 0:
            if poll.poll(left * 1000):
                piece = os.read(reading, 65536)
                if not piece:
                    break
                told += piece
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        while piece := os.read(reading, 65536):
            told += piece
        os.close(reading)
        self._hear(told.decode())
        assert os.WIFSIGNALED(status), told.decode().splitlines()[-1:]
        assert os.WTERMSIG(status) == signal.SIGKILL
        operation = OPERATIONS[self.where[0]]
        self.landed[operation] += 1
        self.landed["in a call"] += operation != "none" and self.where[1] == INSIDE_CALL

    def _hear(self, told: str) -> None:
        gone: set[str] = set()
        for line in told.splitlines():
            match line.split():
                case ["finished", run_id, digest]:
                    self.finished[run_id] = digest
                case ["removing", run_id]:
                    self.doubtful[run_id] = self.finished.pop(run_id, "")
                case ["removed", run_id]:
                    self.doubtful.pop(run_id)
                    gone.add(run_id)
                case ["importing", name]:
                    gone -= self.archives[name].keys()
                    self.doubtful |= {
                        run_id: digest
                        for run_id, digest in self.archives[name].items()
                        if run_id not in self.finished
                    }
                case ["imported", name]:
                    for run_id, digest in self.archives[name].items():
                        self.doubtful.pop(run_id, None)
                        self.finished[run_id] = digest
                case _:
                    raise AssertionError(line)
        for run_id in gone:
            assert not (self.root / "runs" / run_id).exists(), f"removed and still there: {run_id}"

    def check(self) -> None:
        """Every finished run is whole and listed; all else that is listed is whole, or known to be dead."""
        store = RunStore(self.root)
        if not store.runs.exists():
            return
        listed = {run.id: run for run in store.list()}
        assert store.remarks == [], store.remarks
        by_files = {name: read_entry(store.runs / name) for name in store._index.names()}
        truth = {name: entry.summary(store.runs) for name, entry in by_files.items() if entry is not None}
        assert listed == truth
        for run_id, digest in self.finished.items():
            assert listed[run_id].state == "done", listed[run_id]
            assert store.record_sha256(run_id) == digest, f"{run_id} is another"
        for run_id, run in listed.items():
            assert run.state in ("done", "died"), run
            assert run.state == "done" or run_id not in self.doubtful, f"half of a run: {run}"
            if run.state == "done":
                assert (run.folder / "run.json").exists(), f"half of a run: {run}"
                record = store.load(run_id)
                assert hashlib.sha256(record["filler"].encode()).hexdigest() == record["sum"]
                # What was doubtful is settled now.
                self.finished[run_id] = store.record_sha256(run_id)
                assert self.doubtful.get(run_id, "") in ("", self.finished[run_id])
                self.checked += 1
        self.doubtful.clear()
        if (out := self.root / "out.tar.gz").exists():
            import_runs(RunStore(self.root.with_name("third")), out)
            out.unlink()
        self._go_on(store)

    def _go_on(self, store: RunStore) -> None:
        """A new process works with what is there."""
        run = store.new_run("compare")
        store.write_record(run, payload(self.random))
        assert store.resolve("last") == run.id
        self.finished[run.id] = store.record_sha256(run.id)
        if len(self.finished) > MOST_RUNS:
            for gone in remove(store, chosen(store, Retention(keep_last=MOST_RUNS // 3))):
                self.finished.pop(gone.run.id, None)


def main() -> None:
    folder, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    driver = Driver(folder, seed)
    for _ in range(kills):
        driver.kill_one()
        driver.check()
    store = RunStore(driver.root)
    import_runs(store, driver.paths[0])
    remove(store, [])
    leftovers = [name for name in os.listdir(store.runs) if name.startswith(".")]
    in_writes = sum(number for name, number in driver.landed.items() if name not in ("none", "in a call"))
    told = {
        "seed": seed,
        "kills": kills,
        "in_writes": in_writes,
        "landed": dict(driver.landed),
        "records_checked": driver.checked,
        "leftovers": leftovers,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
