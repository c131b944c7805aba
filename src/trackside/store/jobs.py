"""Long work as child processes: started, listed, waited for and ended, by whichever process asks.

A job is `python -m trackside VERB … --json` with a folder of its own below the store's root. It ends with the
process that started it.
"""

import difflib
import errno
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from trackside.records.errors import TracksideError, encodable
from trackside.store.entry import LAST_START_NS
from trackside.store.files import fsync_folder, read_json, store_errors, write_json
from trackside.store.job_files import (
    CANCEL_FILE,
    ENDED,
    JOB_FILE,
    LOG_FILE,
    Job,
    JobState,
    answer_in,
    is_elsewhere,
    is_over,
    log_lines,
    now,
    read_job,
    runner_of,
    write_end,
)
from trackside.store.job_note import JOB_VARIABLE
from trackside.store.job_process import end_marked
from trackside.store.runs import RunStore, process_mark

__all__ = ["Job", "JobState", "Jobs"]

# A comparison ends its workers, puts files back and writes a record when it is asked to end.
_GRACE_S: Final = 10.0
# Past the grace its processes are killed; a runner that has not done so by then never will.
_RUNNER_S: Final = 20.0
_POLL_S: Final = (0.05, 0.5)
_ID: Final = re.compile(r"j-\d{8}-\d{6}-[0-9a-f]{4}")
_ID_ATTEMPTS: Final = 100
# Jobs are for those who wait for them; what is to last is in their runs.
_KEPT_DAYS: Final = 14
_KEPT_JOBS: Final = 200
# A server that runs for months tidies up now and then too.
_TIDY_AGAIN: Final = 100
# Longer than making or removing a folder ever takes.
_LEFTOVER_S: Final = 3600

# Jobs.list hides the builtin of that name from annotations inside the class.
_Listed: TypeAlias = list[Job]
_Lines: TypeAlias = list[str]
_Folders: TypeAlias = list[Path]
_Places: TypeAlias = list[tuple[int, Path]]


@dataclass(frozen=True)
class _Own:
    """A job that this process started."""

    process: subprocess.Popen[bytes]
    pipe: int
    """While it is open, here and nowhere else, the job's owner is alive."""
    over: threading.Event = field(default_factory=threading.Event)


class Jobs:
    """The jobs below one store's root; safe to use from several threads.

    What this object started ends with its process, however that ends, or with `close`. Making one tidies up:
    jobs whose process died are marked `interrupted`, and ended ones that are older than 14 days or beyond the
    newest 200 are removed.

    Args:
        root: as in `RunStore`.
        grace_s: how long a verb that is asked to end has before it is killed.
    """

    def __init__(self, root: Path | None = None, *, grace_s: float = _GRACE_S) -> None:
        self._store = RunStore(root)
        self.root = self._store.root
        self._jobs = self.root / "jobs"
        self._grace_s = grace_s
        self._own: dict[str, _Own] = {}
        self._lock = threading.Lock()
        self._closed = False
        # Tidying up is no reason not to answer.
        with suppress(OSError, TracksideError):
            self._tidy()

    def start(self, argv: Sequence[str], *, cwd: Path | None = None) -> Job:
        """Starts `python -m trackside ARGV` and returns once a process watches over it.

        Args:
            argv: the verb and its arguments; `--json` is put behind the verb where it is missing, so a verb
                with sub-commands must be given it.
            cwd: the verb's working directory; by default this process's.

        Raises:
            TracksideError: kind `usage` for what is no verb, `not-found` for a directory that does not exist,
                `store` when the job's folder cannot be made, `unsupported` when no process can.
        """
        words = [str(word) for word in argv]
        if not words or not re.fullmatch(r"[a-z][a-z-]*", words[0]) or any("\0" in word for word in words):
            raise TracksideError("usage", f"found no verb in {words[:1]}", "see `trackside --help`")
        if sys.platform != "linux":
            raise TracksideError(
                "unsupported", f"jobs need Linux, found {sys.platform}", "run the verb itself"
            )
        # Behind the name of the program that is profiled it would be the program's.
        if "--json" not in (words[1:2] if words[0] == "profile" else words):
            words.insert(1, "--json")
        with self._lock:
            if self._closed:
                raise RuntimeError("these jobs are closed")
        with store_errors(Path(cwd or "."), "start a job in"):
            place = Path(cwd or "").absolute()
        if not place.is_dir():
            raise TracksideError("not-found", f"there is no folder {place}", "name one that there is")
        with suppress(OSError, TracksideError):
            if len(self._folders()) > _KEPT_JOBS + _TIDY_AGAIN:
                self._tidy()
        folder = self._new_folder(words, place)
        own = self._launch(folder, words, place)
        with self._lock:
            self._own[folder.name] = own
        threading.Thread(
            target=_watch, args=(folder, own), name=f"trackside-{folder.name}", daemon=True
        ).start()
        if self._closed:
            self.cancel(folder.name)
        return self._read(folder)

    def get(self, reference: str) -> Job:
        """A job by its id, or by the beginning of one.

        Raises:
            TracksideError: kind `not-found`, when no job or more than one fits.
        """
        return self._read(self._resolve(reference))

    def list(self, *, state: JobState | None = None, limit: int | None = None) -> _Listed:
        """Jobs, newest first."""
        found: _Listed = []
        for folder in self._newest_first():
            if limit is not None and len(found) >= limit:
                break
            # One that is removed meanwhile is none.
            with suppress(TracksideError):
                job = self._read(folder)
                if state in (None, job.state):
                    found.append(job)
        return found

    def wait(self, reference: str, seconds: float | None = None) -> Job:
        """Waits until the job ended, or until so many seconds are over; then the job as it is."""
        folder = self._resolve(reference)
        self._wait(folder, seconds)
        return self._read(folder)

    def cancel(self, reference: str) -> Job:
        """Ends a job and all its processes, whoever started it; returns when they are gone.

        Raises:
            TracksideError: kind `unsupported`, when it runs on another machine.
        """
        folder = self._resolve(reference)
        self._ask_to_end(folder, f"process {os.getpid()} cancelled it")
        self._see_it_end(folder)
        return self._read(folder)

    def result(self, reference: str) -> dict[str, Any] | None:
        """The one JSON document that the verb printed; None where there is none, or not yet all of it."""
        return answer_in(self._resolve(reference))

    def log(self, reference: str, lines: int = 20) -> _Lines:
        """The end of the verb's stderr, printable, without blank lines."""
        return log_lines(self._resolve(reference), lines)

    def close(self) -> None:
        """Cancels what this object started and has not ended; a second call does nothing."""
        with self._lock:
            self._closed = True
            own = dict(self._own)
        folders = [self._jobs / name for name, job in own.items() if not job.over.is_set()]
        for folder in folders:
            with suppress(TracksideError, OSError):
                self._ask_to_end(folder, "the process that started it closed its jobs")
        for folder in folders:
            with suppress(TracksideError, OSError):
                self._see_it_end(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _new_folder(self, words: _Lines, cwd: Path) -> Path:
        with store_errors(self._jobs, "create a job in"):
            self._store.create_root()
            self._jobs.mkdir(exist_ok=True)
            hidden = self._jobs / f".new-{secrets.token_hex(8)}"
            hidden.mkdir()
            try:
                created_ns = time.time_ns()
                facts = {
                    "schema": "trackside.job/1",
                    "verb": words[0],
                    "argv": encodable(words),
                    "cwd": encodable(str(cwd)),
                    "created": now(),
                    "created_ns": created_ns,
                    # As with runs: the newest is what was started last, also where the clock was set back.
                    "order_ns": max([created_ns, *(place + 1 for place, _ in self._places())]),
                    "host": socket.gethostname(),
                    "owner": {"pid": os.getpid(), "process": process_mark(os.getpid())},
                    "grace_s": self._grace_s,
                }
                write_json(hidden / JOB_FILE, facts)
                stamp = datetime.fromtimestamp(created_ns // 1_000_000_000, UTC).strftime("%Y%m%d-%H%M%S")
                for _ in range(_ID_ATTEMPTS):
                    folder = self._jobs / f"j-{stamp}-{secrets.token_hex(2)}"
                    # Whole or not at all; a folder that has files is never replaced.
                    with suppress(FileExistsError):
                        return _renamed(hidden, folder)
            except BaseException:
                shutil.rmtree(hidden, ignore_errors=True)
                raise
        raise TracksideError("store", f"no free job id in {self._jobs}", "try again in a second")

    def _launch(self, folder: Path, words: _Lines, cwd: Path) -> _Own:
        environment = os.environ | {"TRACKSIDE_HOME": str(self.root), JOB_VARIABLE: f"0:{folder}"}
        read_end, pipe = os.pipe()
        try:
            with (folder / LOG_FILE).open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "trackside.store.job_process", str(folder), *words],
                    cwd=cwd,
                    stdin=read_end,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            os.close(pipe)
            with suppress(OSError):
                write_end(folder, "failed", None, f"no process could be started: {error.strerror}")
            raise TracksideError(
                "unsupported",
                f"no process could be started: {error.strerror}",
                _start_remedy(folder, error),
            ) from error
        finally:
            os.close(read_end)
        assert process.stdout is not None
        try:
            with process.stdout as ready:
                # Nothing where it died; `_watch` says so.
                ready.read(1)
        except BaseException:
            # Ctrl-C: nobody will know of this job, so it is to end.
            os.close(pipe)
            raise
        return _Own(process, pipe)

    def _ask_to_end(self, folder: Path, why: str) -> None:
        """Has the job's runner end it, if it has not ended."""
        if is_over(folder):
            return
        facts = read_json(folder / JOB_FILE, links=False)
        if is_elsewhere(facts):
            raise TracksideError(
                "unsupported", f"job {folder.name} runs on {facts['host']}", "cancel it on that machine"
            )
        # On a full disk the end is called `interrupted`, but it comes.
        with suppress(OSError, TracksideError):
            if not (folder / CANCEL_FILE).exists():
                write_json(folder / CANCEL_FILE, {"why": why, "asked": now()})
        _signal_runner(folder, signal.SIGTERM)

    def _see_it_end(self, folder: Path) -> None:
        grace_s = read_json(folder / JOB_FILE, links=False).get("grace_s", _GRACE_S)
        self._wait(folder, grace_s + _RUNNER_S)
        deadline = time.monotonic() + _RUNNER_S
        # It is the last to go, just after it wrote the end.
        while (runner := runner_of(folder)) is not None and is_over(folder) and time.monotonic() < deadline:
            time.sleep(_POLL_S[0])
        if runner is not None:
            # It is stuck. Without it the kernel ends the verb, and we the rest.
            with suppress(ProcessLookupError, PermissionError):
                os.kill(runner, signal.SIGKILL)
            _settle(folder, "cancelled", "it was cancelled, and the process that watched over it was stuck")
        elif not is_over(folder):
            with suppress(OSError, TracksideError):
                _settle(folder, "cancelled", "it was cancelled when nobody watched over it any more")
        own = self._own.get(folder.name)
        if own is not None:
            own.over.wait(_RUNNER_S)

    def _read(self, folder: Path) -> Job:
        # Asked first: what `_watch` saw end has its end written, if that could be.
        own = self._own.get(folder.name)
        is_gone = own is not None and own.over.is_set()
        try:
            job = read_job(folder)
        except FileNotFoundError:
            raise TracksideError("not-found", f"job {folder.name} was removed", "start it again") from None
        if is_gone and job.state not in ENDED:
            return replace(job, state="failed", reason="it ended, and the disk did not take down how")
        return job

    def _wait(self, folder: Path, seconds: float | None) -> None:
        deadline = None if seconds is None else time.monotonic() + max(0.0, seconds)
        own = self._own.get(folder.name)
        pause, longest = _POLL_S
        # Of a job of ours `_watch` sees the end, also where nobody could write it down.
        while not is_over(folder) if own is not None else self._read(folder).state not in ENDED:
            left = pause if deadline is None else min(pause, deadline - time.monotonic())
            if left <= 0:
                return
            if own is None:
                time.sleep(left)
            elif own.over.wait(left):
                return
            pause = min(longest, 1.5 * pause)

    def _resolve(self, reference: str) -> Path:
        names = sorted(folder.name for folder in self._folders())
        fitting = [name for name in names if reference and name.startswith(reference)]
        if reference in names or len(fitting) == 1:
            return self._jobs / (reference if reference in names else fitting[0])
        if fitting:
            shown = ", ".join(fitting[:5]) + (f" and {len(fitting) - 5} more" if len(fitting) > 5 else "")
            message = f"{len(fitting)} jobs start with {reference!r}: {shown}"
            raise TracksideError("not-found", message, "give more of the id")
        if not names:
            raise TracksideError("not-found", f"there are no jobs in {self.root}", "start one")
        near = difflib.get_close_matches(reference, names, 3, 0.3) or names[-3:]
        message = f"no job {reference!r} among the {len(names)} in {self.root}"
        raise TracksideError("not-found", message, f"the nearest: {', '.join(near)}")

    def _folders(self) -> _Folders:
        with store_errors(self._jobs, "read"):
            try:
                return [
                    self._jobs / entry.name
                    for entry in os.scandir(self._jobs)
                    if _ID.fullmatch(entry.name) and not entry.is_symlink()
                ]
            except FileNotFoundError:
                return []

    def _newest_first(self) -> _Folders:
        return [folder for _, folder in sorted(self._places(), reverse=True)]

    def _places(self) -> _Places:
        found: _Places = []
        for folder in self._folders():
            with suppress(FileNotFoundError):
                found.append((_order_ns(folder), folder))
        return found

    def _tidy(self) -> None:
        """Marks what died without an end, and removes what is old."""
        ended: list[tuple[int, Path]] = []
        oldest_ns = time.time_ns() - int(timedelta(days=_KEPT_DAYS).total_seconds() * 1e9)
        for folder in self._folders():
            with suppress(OSError, TracksideError):
                order_ns = _order_ns(folder)
                if not is_over(folder):
                    if read_job(folder).state == "interrupted":
                        _settle(folder, "interrupted", "the process that started it ended")
                    elif not (
                        is_elsewhere(read_json(folder / JOB_FILE, links=False)) and order_ns < oldest_ns
                    ):
                        continue
                ended.append((order_ns, folder))
        ended.sort(reverse=True)
        for number, (order_ns, folder) in enumerate(ended):
            if number >= _KEPT_JOBS or order_ns < oldest_ns:
                with suppress(OSError):
                    shutil.rmtree(_renamed(folder, self._jobs / f".old-{secrets.token_hex(8)}"))
        for leftover in (*self._jobs.glob(".new-*"), *self._jobs.glob(".old-*")):
            with suppress(OSError):
                if time.time() - leftover.stat().st_mtime > _LEFTOVER_S:
                    shutil.rmtree(leftover)


def _watch(folder: Path, own: _Own) -> None:
    """Waits for the runner of a job of ours, and says that it is over, also where the runner could not."""
    code = own.process.wait()
    try:
        if not is_over(folder):
            if code < 0:
                _settle(folder, "interrupted", f"its runner was ended by signal {-code}")
            else:
                said = log_lines(folder, 1)
                how = f"its runner failed with exit code {code}"
                _settle(folder, "failed", how + (f": {said[0]}" if said else ""))
    except (OSError, TracksideError):
        # A full disk: who asks still sees that its processes are gone.
        pass
    finally:
        os.close(own.pipe)
        own.over.set()


def _settle(folder: Path, state: JobState, reason: str) -> None:
    """Ends what is left of a job whose runner is gone, and writes down that it ended."""
    left = end_marked(folder)
    if left:
        reason += f"; {len(left)} processes could not be ended: {', '.join(map(str, left[:5]))}"
    write_end(folder, "cancelled" if (folder / CANCEL_FILE).exists() else state, None, reason)


def _start_remedy(folder: Path, error: OSError) -> str:
    """What helps when a job's first process was refused."""
    match error.errno:
        case errno.E2BIG:
            return "give it fewer or shorter arguments, or a smaller environment"
        case errno.EMFILE | errno.ENFILE:
            return "close some files, or raise their number with `ulimit -n`"
        case errno.ENOSPC | errno.EDQUOT:
            return f"free some space in {folder.parent}"
        # The name is that of Python or of the working directory, whichever it was.
        case errno.EACCES | errno.EPERM | errno.ENOENT | errno.ENOTDIR if error.filename:
            return f"see that {os.fsdecode(error.filename)} is there and yours to use"
        case _:
            return "free memory or end processes"


def _signal_runner(folder: Path, number: signal.Signals) -> None:
    pid = runner_of(folder)
    if pid is None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        # One that is stopped would not hear it.
        os.kill(pid, signal.SIGCONT)


def _renamed(folder: Path, name: Path) -> Path:
    try:
        os.rename(folder, name)
    except OSError as error:
        if name.exists():
            raise FileExistsError(str(name)) from error
        raise
    fsync_folder(name.parent)
    return name


def _order_ns(folder: Path) -> int:
    """Its place among the others: the time, or more where the clock had gone back."""
    try:
        facts = read_json(folder / JOB_FILE, links=False)
        found = facts.get("order_ns", facts.get("created_ns"))
    except (FileNotFoundError, TracksideError):
        found = None
    return found if isinstance(found, int) and 0 <= found < LAST_START_NS else folder.stat().st_mtime_ns
