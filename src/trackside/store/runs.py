"""Run records on disk: one folder per run, one record per folder, written once by atomic rename.

A reader sees a whole record or none, whenever the writer died; a run without one is listed with the reason.
"""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from trackside.records.errors import TracksideError
from trackside.records.migrations import migrated
from trackside.store.entry import RECORD_FILE, START_FILE, RunState, RunSummary, process_mark, read_entry
from trackside.store.files import (
    folder_lock,
    fsync_folder,
    read_json,
    store_errors,
    sweep_leftovers,
    write_json,
)
from trackside.store.index import RunIndex
from trackside.store.job_note import note_run
from trackside.store.order import order_of
from trackside.store.selection import RunFilter, run_with_id

__all__ = ["Found", "Run", "RunState", "RunStore", "RunSummary", "process_mark"]

_ID_ATTEMPTS: Final = 100


@dataclass(frozen=True)
class Run:
    """A run that has a folder of its own; other files of the run may be put beside the record."""

    id: str
    folder: Path
    verb: str


@dataclass(frozen=True)
class Found:
    """What a listing found."""

    runs: tuple[RunSummary, ...]
    """Newest first, not more than were asked for."""
    total: int
    """How many fit."""


class RunStore:
    """The runs below one root.

    Args:
        root: the folder; by default `$TRACKSIDE_HOME`, or `.trackside` of the working directory.
        clock: nanoseconds since the epoch; injected by tests.
        entropy: 4 hexadecimal digits; injected by tests.

    Raises:
        TracksideError: kind `store`, when the root starts at a home or working directory that does not exist.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        clock: Callable[[], int] = time.time_ns,
        entropy: Callable[[], str] = lambda: secrets.token_hex(2),
    ) -> None:
        self.root = _absolute(Path(root or os.environ.get("TRACKSIDE_HOME") or ".trackside"))
        self.runs = self.root / "runs"
        self.remarks: list[str] = []
        """What the user should know of the store itself, each sentence once; it stopped nothing."""
        self._clock = clock
        self._entropy = entropy
        self._index = RunIndex(self.root, self._remark)

    def new_run(self, verb: str) -> Run:
        """Creates the folder of a new run; no other process can get the same id.

        It is the `last` one from now on, also where the clock has gone back since an earlier run began.

        Raises:
            TracksideError: kind `store`, when the folder cannot be created.
        """
        if not re.fullmatch(r"[a-z][a-z-]*", verb):
            raise ValueError(f"a verb is lower-case letters and hyphens, not {verb!r}")
        with store_errors(self.root, "create a run in"):
            self.create_root()
            self.runs.mkdir(exist_ok=True)
            for _ in range(_ID_ATTEMPTS):
                now_ns = self._clock()
                stamp = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC).strftime("%Y%m%d-%H%M%S")
                run_id = f"{verb[0]}-{stamp}-{self._entropy()}"
                run = Run(run_id, self.runs / run_id, verb)
                try:
                    run.folder.mkdir()
                except FileExistsError:
                    continue
                start: dict[str, Any] = {"id": run_id, "verb": verb, "started_ns": now_ns}
                worker = {
                    "host": socket.gethostname(),
                    "pid": os.getpid(),
                    "process": process_mark(os.getpid()),
                    "argv": [os.fsencode(a).decode("utf-8", "backslashreplace") for a in sys.argv],
                }
                try:
                    order_ns = order_of(self.root, run_id, now_ns)
                    if order_ns != now_ns:
                        start["order_ns"] = order_ns
                    write_json(run.folder / START_FILE, start | worker)
                    fsync_folder(self.runs)
                except BaseException:
                    # A full disk has room for a folder still: it would be listed as a run that died.
                    shutil.rmtree(run.folder, ignore_errors=True)
                    raise
                note_run(self.root, run_id, verb)
                return run
        raise TracksideError(
            "store",
            f"no free run id in {self.runs} after {_ID_ATTEMPTS} draws",
            "try again in a second, or set TRACKSIDE_HOME to another folder",
        )

    def write_record(self, run: Run, record: Mapping[str, Any]) -> Path:
        """Stores the run's record and returns its path.

        A run has one final record. A record with `"status": "running"` may come before it, once.

        Raises:
            TracksideError: kind `store`, when there is a record already, or the disk refuses.
        """
        path = run.folder / RECORD_FILE
        # The lock is for a judge and its supervisor, which may both want to write the end of one run.
        with store_errors(path, "write"), folder_lock(run.folder):
            sweep_leftovers(path)
            if path.exists() and (
                read_json(path).get("status") != "running" or record.get("status") == "running"
            ):
                raise TracksideError(
                    "store",
                    f"will not overwrite the record of run {run.id}: {path}",
                    "records are written once; start a new run",
                )
            write_json(path, record)
        return path

    def load(self, reference: str) -> dict[str, Any]:
        """The record of a run, by id, by unique prefix, or `last` for the newest run, as this release has it.

        Raises:
            TracksideError: kind `not-found`, when no run or several fit, or the run has no record;
                kind `store`, when its record cannot be read, or a newer release wrote it.
        """
        return migrated(read_json(self._record_path(reference)))

    def record_sha256(self, reference: str) -> str:
        """The SHA-256 of the record's bytes, to quote beside a result."""
        path = self._record_path(reference)
        with store_errors(path, "read"):
            return hashlib.sha256(path.read_bytes()).hexdigest()

    def resolve(self, reference: str) -> str:
        """The full id that a reference stands for.

        Raises:
            TracksideError: kind `not-found`, when no run or more than one fits.
        """
        ids = self._index.names()
        if not ids:
            raise self._empty()
        if reference == "last":
            entries = self._index.entries(1)
            if not entries:
                raise self._empty()
            return entries[0].id
        return run_with_id(reference, ids, str(self.root))

    def find(self, wanted: RunFilter, limit: int | None = None) -> Found:
        """Runs that fit, newest first; those whose files cannot be read are listed too, with the reason."""
        # A filter may choose any record that changed; without one, only what is shown must be looked at.
        everything = wanted == RunFilter()
        entries = self._index.entries(limit if everything else None)
        fitting = entries if everything else [entry for entry in entries if wanted.fits(entry)]
        runs = tuple(entry.summary(self.runs) for entry in fitting[:limit])
        return Found(runs, len(fitting))

    def list(self, *, verb: str | None = None, limit: int | None = None) -> list[RunSummary]:
        """Summaries, newest first. Runs whose files cannot be read are listed too, with the reason."""
        return [*self.find(RunFilter(verb=verb), limit).runs]

    def count(self, *, verb: str | None = None) -> int:
        """How many runs `list` would return without a limit."""
        return self.find(RunFilter(verb=verb), 0).total

    def _record_path(self, reference: str) -> Path:
        run_id = self.resolve(reference)
        path = self.runs / run_id / RECORD_FILE
        if not path.exists():
            entry = read_entry(self.runs / run_id)
            reason = entry.reason if entry is not None else "its folder is gone"
            raise TracksideError(
                "not-found",
                f"run {run_id} has no record: {reason}",
                f"wait for it if it runs, else restore {path} from a copy, or run the command again",
            )
        return path

    def take_remarks(self) -> Sequence[str]:
        """The remarks that nobody was told yet."""
        taken = []
        # One by one: another thread may add to them.
        while self.remarks:
            taken.append(self.remarks.pop(0))
        return taken

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)

    def _empty(self) -> TracksideError:
        return TracksideError(
            "not-found",
            f"there are no runs in {self.root}",
            "run `trackside compare BASELINE CANDIDATE`, or set TRACKSIDE_HOME to where the runs are",
        )

    def new_run_if_possible(self, verb: str) -> Run | None:
        """As `new_run`; None and a remark where there is no room or right: some verbs answer all the same."""
        try:
            return self.new_run(verb)
        except TracksideError as error:
            self._not_kept(verb, error)
            return None

    def write_if_possible(self, run: Run | None, record: Mapping[str, Any]) -> None:
        """The record of a run that `new_run_if_possible` gave; a remark where it cannot be stored."""
        if run is not None:
            try:
                self.write_record(run, record)
            except TracksideError as error:
                self._not_kept(run.verb, error)

    def _not_kept(self, verb: str, error: TracksideError) -> None:
        self._remark(f"what {verb} found is not kept as a run: {error.message}; {error.remedy}")

    def create_root(self) -> None:
        """The folder, with what keeps git away from it where it is new."""
        try:
            self.root.mkdir(parents=True)
        except FileExistsError:
            # Perhaps a folder with other things in it, and none of our business what git sees of those.
            return
        # Records name local paths and machines; nobody wants them committed by `git add .`.
        try:
            (self.root / ".gitignore").write_text("*\n")
        except OSError:
            # Or the next run would find the folder, and leave it open to git.
            with contextlib.suppress(OSError):
                (self.root / ".gitignore").unlink(missing_ok=True)
                self.root.rmdir()
            raise


def _absolute(root: Path) -> Path:
    """The root as it is meant now: a later chdir must not split one session's runs over two places."""
    try:
        return root.expanduser().absolute()
    except RuntimeError:
        missing = "home directory"
    except OSError:
        missing = "working directory"
    raise TracksideError(
        "store",
        f"cannot keep runs in {root}: there is no {missing} that it could start from",
        "set TRACKSIDE_HOME to an absolute path",
    )
