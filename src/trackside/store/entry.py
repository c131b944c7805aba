"""What the files of one run tell, as a line of the list: state, verdict and what it was about."""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import orjson

from trackside.records.errors import TracksideError
from trackside.records.migrations import is_newer, migrated, schema_of
from trackside.store.files import read_json

__all__ = [
    "ID",
    "KEPT",
    "LAST_START_NS",
    "RECORD_FILE",
    "START_FILE",
    "Entry",
    "RunState",
    "RunSummary",
    "process_mark",
    "read_entry",
    "started_ns_of_id",
]

RECORD_FILE: Final = "record.json"
START_FILE: Final = "run.json"

# Verb letter, UTC second, 16 random bits: short enough to type; mkdir decides when two processes draw one id.
ID: Final = re.compile(r"[a-z]-(\d{8}-\d{6})-[0-9a-f]{4}")

# In the year 2554: what our JSON holds. Linux can be set to no time as late as that.
LAST_START_NS: Final = 2**64 - 1

# Of a command: its program, and what tells its runs apart. A list folds it, and an index keeps ten thousand.
_ABOUT_LENGTH: Final = 60

RunState = Literal["done", "failed", "running", "died", "unreadable", "newer"]
"""`died`: the process is gone and there is no final record. `unreadable`: a file is there and makes no sense.
`newer`: a later release of Trackside wrote the record, and this one would misread it."""


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
    runs: Path
    """Where the folders of all runs are."""

    @property
    def folder(self) -> Path:
        return self.runs / self.id


class Entry(NamedTuple):
    """A run as the index keeps it. A tuple: ten thousand of them are made for one list."""

    id: str
    verb: str
    started_ns: int
    order_ns: int
    """By this runs are ordered: the start, or more where the clock had gone back (see `RunStore.new_run`)."""
    state: RunState
    verdict: str | None
    certified: bool | None
    about: str | None
    reason: str | None = None

    @property
    def final(self) -> bool:
        """Whether its record is never written again, and says all that there will ever be."""
        return self.state in ("done", "failed")

    def summary(self, runs: Path) -> RunSummary:
        return RunSummary(
            id=self.id,
            verb=self.verb,
            started=datetime.fromtimestamp(self.started_ns // 1_000_000_000, UTC).isoformat(),
            state=self.state,
            verdict=self.verdict,
            # SQLite has no booleans.
            certified=None if self.certified is None else bool(self.certified),
            about=self.about,
            reason=self.reason,
            runs=runs,
        )


KEPT: Final = slice(0, 8)
"""The fields of an entry that the index keeps: all but the reason, which a final record has none of."""


@dataclass(frozen=True)
class _Start:
    """What is known of a run's beginning: run.json, or what the id alone tells where that file is missing."""

    verb: str
    started_ns: int
    order_ns: int
    pid: int | None = None
    process: str | None = None
    host: str | None = None
    trouble: str | None = None


def read_entry(folder: Path) -> Entry | None:
    """Reads a run's folder; None where there is nothing (any more)."""
    record: dict[str, Any] = {}
    state: RunState = "done"
    reason: str | None = None
    missing = False
    try:
        record = read_json(folder / RECORD_FILE)
        if is_newer(record):
            state, reason = "newer", f"a newer Trackside wrote it, as {record['schema']}: update to read it"
        else:
            record = migrated(record)
    except FileNotFoundError:
        missing = True
    except TracksideError as error:
        state, reason = "unreadable", error.message
        if os.path.exists(folder) and not os.path.isdir(folder):
            reason = f"{folder} is a file, and a run is a folder"
    start = _read_start(folder, record)
    if missing and start.pid is None and not folder.is_dir():
        return None
    if missing or record.get("status") == "running":
        state, reason = _without_final_record(start)
    elif state == "done" and record.get("status") == "failed":
        state = "failed"
    # The fields of a newer record may mean something else by now.
    told = {} if state == "newer" else record
    verdict, certified = told.get("verdict"), told.get("certified")
    return Entry(
        id=folder.name,
        verb=start.verb,
        started_ns=start.started_ns,
        order_ns=start.order_ns,
        state=state,
        verdict=verdict if isinstance(verdict, str) else None,
        certified=certified if isinstance(certified, bool) else None,
        about=_about(told),
        reason=reason,
    )


def started_ns_of_id(run_id: str) -> int:
    """The second that an id names; 0 for one that no clock can have said."""
    match = ID.fullmatch(run_id)
    try:
        started = datetime.strptime(match[1] if match else "", "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return 0
    started_ns = int(started.timestamp()) * 1_000_000_000
    return started_ns if started_ns < LAST_START_NS else 0


def _read_start(folder: Path, record: Mapping[str, Any]) -> _Start:
    try:
        found = orjson.loads((folder / START_FILE).read_bytes())
        started_ns = int(found["started_ns"])
        order_ns = int(found.get("order_ns", started_ns))
        for name, value in (("started_ns", started_ns), ("order_ns", order_ns)):
            if not 0 <= value < LAST_START_NS:
                raise ValueError(f"{name} is {value}, which is no time that a run can have")
        return _Start(
            verb=str(found["verb"]),
            started_ns=started_ns,
            order_ns=order_ns,
            pid=int(found["pid"]),
            process=str(found["process"]),
            host=str(found["host"]),
        )
    except (FileNotFoundError, NotADirectoryError):
        # Killed between mkdir and the first write.
        trouble = None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        trouble = f"{START_FILE} is unreadable: {error!r}"
    schema = schema_of(record)
    started_ns = started_ns_of_id(folder.name)
    return _Start(schema[0] if schema else "unknown", started_ns, started_ns, trouble=trouble)


def _about(record: Mapping[str, Any]) -> str | None:
    """`softmax/old.py → new.py` for a comparison of two files; the lines, cut, for commands and profiles."""
    command = record.get("command")
    schema = schema_of(record)
    if schema is not None and schema[0] == "profile" and isinstance(command, list) and command:
        program, *words = map(str, command[1:] if command[0] == "python" and command[1:] else command)
        return _cut(" ".join([_near(Path(program)), *words]))
    pair = [one for arm in ("baseline", "candidate") if isinstance(one := record.get(arm), dict)]
    paths = [path for one in pair if isinstance(path := one.get("path"), str) and path]
    if len(paths) != 2:
        return None
    if any(one.get("format") == "command" for one in pair):
        return " → ".join(map(_cut, paths))
    first, second = map(Path, paths)
    folder = "" if first.parent == second.parent else f"{second.parent.name}/"
    return f"{first.parent.name}/{first.name} → {folder}{second.name}".removeprefix("/")


def _cut(text: str) -> str:
    """With an ellipsis: `--steps 30` must not stand where it was `--steps 300`."""
    return text if len(text) <= _ABOUT_LENGTH else f"{text[: _ABOUT_LENGTH - 1]}…"


def _near(path: Path) -> str:
    """A file with its folder: of a whole path, as jobs have it, a cut would leave the home directory."""
    return f"{path.parent.name}/{path.name}".removeprefix("/") if path.is_absolute() else str(path)


def _without_final_record(start: _Start) -> tuple[RunState, str]:
    """Tells a run that is under way from one whose process is gone."""
    if start.trouble:
        return "unreadable", start.trouble
    if start.pid is None:
        return "died", f"it has neither {START_FILE} nor a final record"
    if start.host != socket.gethostname():
        return "running", f"it started on {start.host}, and cannot be watched from here"
    if start.process != process_mark(start.pid):
        # Without a word on when: the record may also have been deleted since.
        return "died", f"its process {start.pid} ended, and there is no final record"
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
