"""One job's folder: which files are in it, who writes each, and the state that they add up to.

`job.json` is written by who starts the job, `runner.json` by the process that watches over it, `note.json` by
the verb, `cancel.json` by who wants it ended, `end.json` by whoever sees the end first; each once and whole.
"""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from trackside.records.errors import TracksideError, printable
from trackside.store.files import folder_lock, open_unlinked, read_json, write_json
from trackside.store.job_note import JOB_FILE, NOTE_FILE
from trackside.store.runs import process_mark

__all__ = [
    "CANCEL_FILE",
    "ENDED",
    "END_FILE",
    "JOB_FILE",
    "LOG_FILE",
    "RUNNER_FILE",
    "STDOUT_FILE",
    "Job",
    "JobState",
    "answer_in",
    "is_elsewhere",
    "is_over",
    "log_lines",
    "now",
    "read_job",
    "runner_of",
    "write_end",
]

RUNNER_FILE: Final = "runner.json"
CANCEL_FILE: Final = "cancel.json"
END_FILE: Final = "end.json"
STDOUT_FILE: Final = "stdout.json"
LOG_FILE: Final = "log"

JobState = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
"""`queued`: it waits for a device. `done`: the verb wrote its answer, whatever that is. `failed`: it did not.
`interrupted`: the process that started it ended first."""

ENDED: Final[frozenset[str]] = frozenset({"done", "failed", "cancelled", "interrupted"})

_PROGRESS_LENGTH: Final = 200
_LINE_LENGTH: Final = 2000
# Enough for the lines that anyone asks for; a program that is profiled may write gigabytes.
_TAIL_BYTES: Final = 256 << 10
_PROGRESS_BYTES: Final = 64 << 10
# What `profile` says itself; what else is in its log comes from the program.
_OWN_WORDS: Final = "trackside: "


@dataclass(frozen=True)
class Job:
    """A verb that runs, or ran, as a child process."""

    id: str
    verb: str
    argv: tuple[str, ...]
    """What follows `python -m trackside`."""
    state: JobState
    created: str
    """UTC, ISO 8601."""
    started: str | None
    """When it first had its device, or began, if it needs none; None as long as it waits."""
    ended: str | None
    exit_code: int | None
    """Negative for the signal that ended it; None where nobody saw the end."""
    run_id: str | None
    """The run that it makes, as soon as there is one."""
    progress: str
    """The last line that the verb narrated, printable, at most 200 characters."""
    reason: str | None
    """Why it failed, was cancelled or interrupted; while queued, who has the device."""
    folder: Path


def read_job(folder: Path) -> Job:
    """The job as its files show it now.

    Raises:
        FileNotFoundError: there is no such job.
    """
    try:
        facts = read_json(folder / JOB_FILE, links=False)
    except TracksideError as error:
        facts = {"trouble": error.message}
    note = _read(folder / NOTE_FILE)
    state, reason, end = _state(folder, facts, note)
    verb = str(facts.get("verb", "unknown"))
    return Job(
        id=folder.name,
        verb=verb,
        argv=tuple(map(str, facts.get("argv") or ())),
        state=state,
        created=str(facts.get("created", "")),
        started=_started(folder, note),
        ended=end.get("ended"),
        exit_code=end.get("exit_code"),
        run_id=_run_of(verb, note),
        progress=_progress(folder, verb),
        reason=reason,
        folder=folder,
    )


def is_over(folder: Path) -> bool:
    return (folder / END_FILE).exists()


def is_elsewhere(facts: Mapping[str, Any]) -> bool:
    """Whether the job runs on another machine, whose processes cannot be seen from here."""
    return facts.get("host") not in (None, socket.gethostname())


def runner_of(folder: Path) -> int | None:
    """The live process that watches over the job; None where there is none (yet, or any more)."""
    return _alive(_read(folder / RUNNER_FILE))


def write_end(folder: Path, state: JobState, exit_code: int | None = None, reason: str | None = None) -> bool:
    """Writes down how the job ended, unless someone has; returns whether this call did."""
    with folder_lock(folder):
        if is_over(folder):
            return False
        end = {"state": state, "exit_code": exit_code, "reason": reason, "ended": now()}
        write_json(folder / END_FILE, end)
    return True


def answer_in(folder: Path) -> dict[str, Any] | None:
    """The one JSON document that the verb printed; None where there is none, or not all of it."""
    try:
        with open_unlinked(folder / STDOUT_FILE) as file:
            found = orjson.loads(file.read())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def log_lines(folder: Path, most: int, tail_bytes: int = _TAIL_BYTES) -> list[str]:
    """The last lines of the verb's stderr that are not blank, printable."""
    try:
        with open_unlinked(folder / LOG_FILE) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - tail_bytes))
            tail = file.read(tail_bytes)
    except OSError:
        return []
    # A carriage return too: a progress bar is one long line to all else.
    lines = re.split(r"[\r\n]+", tail.decode("utf-8", "replace"))
    shown = (printable(line.replace("\t", " "))[:_LINE_LENGTH].rstrip() for line in lines if line.strip())
    return list(shown)[-most:] if most > 0 else []


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _state(
    folder: Path, facts: Mapping[str, Any], note: Mapping[str, Any]
) -> tuple[JobState, str | None, dict[str, Any]]:
    """State, reason, and the end where there is one."""
    # Asked in this order: a runner may come up meanwhile, and one that is gone has written the end before.
    begun = (folder / RUNNER_FILE).exists()
    runner = runner_of(folder)
    owner = _alive(facts.get("owner"))
    end = _read(folder / END_FILE)
    if end.get("state") in ENDED:
        return end["state"], end.get("reason"), end
    if "trouble" in facts:
        return "failed", str(facts["trouble"]), end
    if is_elsewhere(facts):
        return "running", f"it started on {facts['host']}, and cannot be watched from here", end
    if runner is None and (owner is None or begun):
        return "interrupted", "its processes ended before it did", end
    if runner is None:
        return "queued", "it is being started", end
    if (folder / CANCEL_FILE).exists():
        return "running", "it is being cancelled", end
    if note.get("state") == "queued":
        return "queued", str(note.get("waits_for")), end
    return "running", None, end


def _started(folder: Path, note: Mapping[str, Any]) -> str | None:
    if isinstance(found := note.get("started"), str):
        return found
    # The verb runs as soon as its runner does, until it has to wait.
    return None if note.get("state") == "queued" else _read(folder / RUNNER_FILE).get("started")


def _run_of(verb: str, note: Mapping[str, Any]) -> str | None:
    found = note.get("runs")
    runs = (
        [run for run in found if isinstance(run, list) and len(run) == 2] if isinstance(found, list) else []
    )
    # A verb may make runs of others on its way.
    own = [run for run in runs if run[1] == verb]
    return printable(str((own or runs)[0][0])) if runs else None


def _progress(folder: Path, verb: str) -> str:
    lines = log_lines(folder, _PROGRESS_BYTES, _PROGRESS_BYTES)
    own = [line for line in lines if line.startswith(_OWN_WORDS)] if verb == "profile" else []
    return (own or lines or [""])[-1].removeprefix(_OWN_WORDS)[:_PROGRESS_LENGTH]


def _alive(process: object) -> int | None:
    """The number of a process that is written down as `pid` and `process`, if that very one still runs."""
    if not isinstance(process, Mapping):
        return None
    pid, mark = process.get("pid"), process.get("process")
    return pid if isinstance(pid, int) and mark and process_mark(pid) == mark else None


def _read(path: Path) -> dict[str, Any]:
    """A small file that may not be there yet; what cannot be read counts as that."""
    try:
        return read_json(path, links=False)
    except (FileNotFoundError, TracksideError):
        return {}
