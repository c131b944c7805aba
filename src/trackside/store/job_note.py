"""What a verb tells the job that it works for: whether it waits for a device, and which runs it makes.

A job's verb finds `TRACKSIDE_JOB=PID:FOLDER` in its environment, PID being its own: what it starts inherits
the variable and is not meant. Notes are for those who ask; no failure of theirs is a measurement's.
"""

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

__all__ = [
    "JOB_FILE",
    "JOB_VARIABLE",
    "NOTE_FILE",
    "job_owner",
    "job_process",
    "note_device",
    "note_run",
    "note_waiting",
]

JOB_VARIABLE: Final = "TRACKSIDE_JOB"
JOB_FILE: Final = "job.json"
NOTE_FILE: Final = "note.json"

# A verb that makes more, as `selfcheck` might, is known by its first ones.
_MOST_RUNS: Final = 100

_lock = threading.Lock()
_facts: dict[str, Any] = {"state": "running", "started": None, "waits_for": None, "runs": []}
_held: dict[int, int] = {}
"""Thread → how many devices it holds."""


def job_process() -> int | None:
    """The verb of the job that this process belongs to; None where it belongs to none."""
    pid = os.environ.get(JOB_VARIABLE, "").partition(":")[0]
    return int(pid) if pid.isdecimal() else None


def job_owner() -> Mapping[str, Any] | None:
    """Who started the job that this process belongs to, as `pid` and `process`; None where nobody can say."""
    folder = os.environ.get(JOB_VARIABLE, "").partition(":")[2]
    try:
        owner = orjson.loads((Path(folder) / JOB_FILE).read_bytes())["owner"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return owner if isinstance(owner, dict) else None


def note_waiting(key: str, who: str) -> None:
    """This process waits for a device that others have."""
    folder = _folder()
    if folder is None:
        return
    with _lock:
        own = _held.get(threading.get_ident(), 0)
        # While another of its threads measures, the job as a whole is under way.
        if own == sum(_held.values()):
            _facts.update(state="queued", waits_for=f"{who} measures on {key}")
            if own:
                # It has some of its devices, and begins with the last.
                _facts.update(started=None)
            _write(folder)


def note_device(change: int) -> None:
    """This process got a device (1) or gave one back (-1)."""
    folder = _folder()
    if folder is None:
        return
    with _lock:
        thread = threading.get_ident()
        _held[thread] = _held.get(thread, 0) + change
        if change > 0:
            _facts.update(state="running", waits_for=None, started=_facts["started"] or _now())
            _write(folder)


def note_run(root: Path, run_id: str, verb: str) -> None:
    """This process made a run in the store at `root`."""
    folder = _folder()
    if folder is None or folder.parent.parent != root:
        return
    with _lock:
        if len(_facts["runs"]) < _MOST_RUNS:
            _facts["runs"].append([run_id, verb])
            _write(folder)


def _folder() -> Path | None:
    pid, _, folder = os.environ.get(JOB_VARIABLE, "").partition(":")
    return Path(folder) if pid == str(os.getpid()) and folder else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(folder: Path) -> None:
    # Not as records are written: a note need not outlive a power cut, and syncing a disk takes its time.
    temporary = folder / f".{NOTE_FILE}.{os.getpid()}.tmp"
    with suppress(OSError, TypeError, ValueError):
        temporary.write_bytes(orjson.dumps(_facts))
        os.replace(temporary, folder / NOTE_FILE)
