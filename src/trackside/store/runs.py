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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import orjson

from trackside.records.errors import TracksideError
from trackside.store.files import (
    folder_lock,
    fsync_folder,
    read_json,
    store_errors,
    sweep_leftovers,
    write_json,
)

__all__ = ["Run", "RunState", "RunStore", "RunSummary", "process_mark"]

RECORD_FILE: Final = "record.json"
START_FILE: Final = "run.json"

# Verb letter, UTC second, 16 random bits: short enough to type; mkdir decides when two processes draw one id.
_ID: Final = re.compile(r"[a-z]-(\d{8}-\d{6})-[0-9a-f]{4}")
_ID_ATTEMPTS: Final = 100
_ABOUT_LENGTH: Final = 30

# The end of the year 9999, past which datetime has no word for a time.
_LAST_START_NS: Final = 253_402_300_800_000_000_000

RunState = Literal["done", "failed", "running", "died", "unreadable"]
"""`died`: the process ended without a final record. `unreadable`: a file is there and makes no sense."""


@dataclass(frozen=True)
class Run:
    """A run that has a folder of its own; other files of the run may be put beside the record."""

    id: str
    folder: Path
    verb: str


@dataclass(frozen=True)
class RunSummary:
    """One line of `runs list`."""

    id: str
    verb: str
    started: str
    """UTC, ISO 8601."""
    state: RunState
    verdict: str | None
    certified: bool | None
    about: str | None
    """Of a comparison, the names of what was compared; of a profile, what was run."""
    reason: str | None
    """Why there is no final record; None for states `done` and `failed`."""
    folder: Path


@dataclass(frozen=True)
class _Start:
    """What is known of a run's beginning: run.json, or what the id alone tells where that file is missing."""

    verb: str
    started_ns: int
    pid: int | None = None
    process: str | None = None
    host: str | None = None
    trouble: str | None = None


# RunStore.list hides the builtin of that name from annotations inside the class.
_Starts: TypeAlias = list[tuple[str, _Start]]


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
        self._runs = self.root / "runs"
        self._clock = clock
        self._entropy = entropy

    def new_run(self, verb: str) -> Run:
        """Creates the folder of a new run; no other process can get the same id.

        Raises:
            TracksideError: kind `store`, when the folder cannot be created.
        """
        if not re.fullmatch(r"[a-z][a-z-]*", verb):
            raise ValueError(f"a verb is lower-case letters and hyphens, not {verb!r}")
        with store_errors(self.root, "create a run in"):
            self.create_root()
            self._runs.mkdir(exist_ok=True)
            for _ in range(_ID_ATTEMPTS):
                now_ns = self._clock()
                stamp = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC).strftime("%Y%m%d-%H%M%S")
                run_id = f"{verb[0]}-{stamp}-{self._entropy()}"
                run = Run(run_id, self._runs / run_id, verb)
                try:
                    run.folder.mkdir()
                except FileExistsError:
                    continue
                start = {"id": run_id, "verb": verb, "started_ns": now_ns, "host": socket.gethostname()}
                worker = {
                    "pid": os.getpid(),
                    "process": process_mark(os.getpid()),
                    "argv": [os.fsencode(a).decode("utf-8", "backslashreplace") for a in sys.argv],
                }
                try:
                    write_json(run.folder / START_FILE, start | worker)
                    fsync_folder(self._runs)
                except BaseException:
                    # A full disk has room for a folder still: it would be listed as a run that died.
                    shutil.rmtree(run.folder, ignore_errors=True)
                    raise
                return run
        raise TracksideError(
            "store",
            f"no free run id in {self._runs} after {_ID_ATTEMPTS} draws",
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
        """The record of a run, by id, by unique prefix, or `last` for the newest run.

        Raises:
            TracksideError: kind `not-found`, when no run or several fit, or the run has no record;
                kind `store`, when its record cannot be read.
        """
        return read_json(self._record_path(reference))

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
        ids = self._ids()
        if not ids:
            raise TracksideError(
                "not-found",
                f"there are no runs in {self.root}",
                "run `trackside compare BASELINE CANDIDATE`, or set TRACKSIDE_HOME to where the runs are",
            )
        if reference == "last":
            return self._newest_first(ids)[0][0]
        if reference in ids:
            return reference
        fitting = sorted(run_id for run_id in ids if reference and run_id.startswith(reference))
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            shown = ", ".join(fitting[:5]) + (f" and {len(fitting) - 5} more" if len(fitting) > 5 else "")
            message = f"{len(fitting)} runs start with {reference!r}: {shown}"
            raise TracksideError("not-found", message, "give more of the id")
        message = f"no run {reference!r} among the {len(ids)} in {self.root}"
        raise TracksideError("not-found", message, "see `trackside runs list`")

    def list(self, *, verb: str | None = None, limit: int | None = None) -> list[RunSummary]:
        """Summaries, newest first. Runs whose files cannot be read are listed too, with the reason."""
        starts = self._newest_first(self._ids())
        chosen = [(run_id, start) for run_id, start in starts if verb in (None, start.verb)]
        return [self._summary(run_id, start) for run_id, start in chosen[:limit]]

    def count(self, *, verb: str | None = None) -> int:
        """How many runs `list` would return without a limit."""
        ids = self._ids()
        return len(ids) if verb is None else sum(self._start(run_id).verb == verb for run_id in ids)

    def _record_path(self, reference: str) -> Path:
        run_id = self.resolve(reference)
        path = self._runs / run_id / RECORD_FILE
        if not path.exists():
            reason = self._summary(run_id, self._start(run_id)).reason
            raise TracksideError(
                "not-found", f"run {run_id} has no record: {reason}", "see `trackside runs list`"
            )
        return path

    def _ids(self) -> set[str]:
        with store_errors(self._runs, "read"):
            try:
                return {entry.name for entry in os.scandir(self._runs) if _ID.fullmatch(entry.name)}
            except FileNotFoundError:
                return set()

    def _newest_first(self, ids: set[str]) -> _Starts:
        # The id orders runs by the second; within one second the nanoseconds in run.json do.
        starts = [(run_id, self._start(run_id)) for run_id in ids]
        return sorted(starts, key=lambda item: (item[1].started_ns, item[0]), reverse=True)

    def _start(self, run_id: str) -> _Start:
        folder = self._runs / run_id
        try:
            found = orjson.loads((folder / START_FILE).read_bytes())
            started_ns = int(found["started_ns"])
            if not 0 <= started_ns < _LAST_START_NS:
                raise ValueError(f"started_ns is {started_ns}, which is no time that a run can have")
            return _Start(
                verb=str(found["verb"]),
                started_ns=started_ns,
                pid=int(found["pid"]),
                process=str(found["process"]),
                host=str(found["host"]),
            )
        except FileNotFoundError:
            # Killed between mkdir and the first write.
            trouble = None
        except (OSError, ValueError, KeyError, TypeError) as error:
            trouble = f"{START_FILE} is unreadable: {error!r}"
        return _Start(_verb_of_record(folder / RECORD_FILE), _started_ns_of_id(run_id), trouble=trouble)

    def _summary(self, run_id: str, start: _Start) -> RunSummary:
        folder = self._runs / run_id
        record: dict[str, Any] = {}
        state: RunState = "done"
        reason: str | None = None
        try:
            record = read_json(folder / RECORD_FILE)
        except FileNotFoundError:
            state, reason = _without_final_record(start)
        except TracksideError as error:
            state, reason = "unreadable", error.message
        else:
            if record.get("status") == "running":
                state, reason = _without_final_record(start)
            elif record.get("status") == "failed":
                state = "failed"
        verdict, certified = record.get("verdict"), record.get("certified")
        return RunSummary(
            id=run_id,
            verb=start.verb,
            started=datetime.fromtimestamp(start.started_ns // 1_000_000_000, UTC).isoformat(),
            state=state,
            verdict=verdict if isinstance(verdict, str) else None,
            certified=certified if isinstance(certified, bool) else None,
            about=_about(record),
            reason=reason,
            folder=folder,
        )

    def new_run_if_possible(self, verb: str) -> Run | None:
        """As `new_run`; None where there is no room or right: some verbs have an answer all the same."""
        try:
            return self.new_run(verb)
        except TracksideError:
            return None

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


def _started_ns_of_id(run_id: str) -> int:
    match = _ID.fullmatch(run_id)
    try:
        started = datetime.strptime(match[1] if match else "", "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(started.timestamp()) * 1_000_000_000


def _verb_of_record(path: Path) -> str:
    try:
        schema = read_json(path).get("schema")
    except (FileNotFoundError, TracksideError):
        schema = None
    match = re.fullmatch(r"trackside\.([a-z-]+)/\d+", schema) if isinstance(schema, str) else None
    return match[1] if match else "unknown"


def _about(record: Mapping[str, Any]) -> str | None:
    """`softmax/old.py → new.py` for a comparison of two files; the lines, cut, for commands and profiles."""
    command = record.get("command")
    if record.get("schema") == "trackside.profile/1" and isinstance(command, list) and command:
        words = command[1:] if command[0] == "python" else command
        return " ".join(map(str, words))[:_ABOUT_LENGTH]
    pair = [one for arm in ("baseline", "candidate") if isinstance(one := record.get(arm), dict)]
    paths = [path for one in pair if isinstance(path := one.get("path"), str) and path]
    if len(paths) != 2:
        return None
    if any(one.get("format") == "command" for one in pair):
        return " → ".join(path[:_ABOUT_LENGTH] for path in paths)
    first, second = map(Path, paths)
    folder = "" if first.parent == second.parent else f"{second.parent.name}/"
    return f"{first.parent.name}/{first.name} → {folder}{second.name}".removeprefix("/")


def _without_final_record(start: _Start) -> tuple[RunState, str]:
    """Tells a run that is under way from one whose process is gone."""
    if start.trouble:
        return "unreadable", start.trouble
    if start.pid is None:
        return "died", "it ended before it wrote anything"
    if start.host != socket.gethostname():
        return "running", f"it started on {start.host}, and cannot be watched from here"
    if start.process != process_mark(start.pid):
        return "died", f"its process {start.pid} ended before it wrote a final record"
    return "running", f"process {start.pid} is at work"


def process_mark(pid: int) -> str:
    """What tells a live process from a later one with the same number; empty when there is none.

    Boot id and start in clock ticks since boot: unlike a time of day, they do not move when the clock is set.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return _process_mark_without_proc(pid)
    # Field 2 is the program's name in parentheses: any bytes, also blanks and parentheses.
    state, *fields = stat.rpartition(b")")[2].split()
    return "" if state in b"ZX" else f"{boot}:{fields[18].decode()}"


def _process_mark_without_proc(pid: int) -> str:
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return f"pid:{pid}"
