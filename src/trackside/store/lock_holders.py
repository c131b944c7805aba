"""Who holds which devices: a note for each holder, beside the lock files, which lives as long as its holder.

The holder has its note locked, and the kernel ends that with the process: a note that can be locked is of a
dead one, also where the process is in another container and its number says nothing here.
"""

import fcntl
import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from trackside.store.job_note import job_owner, job_process
from trackside.store.lock_files import unlock
from trackside.store.runs import process_mark

__all__ = ["Ancestry", "Holder", "HolderNote", "holder_named", "holders_in"]

_PREFIX: Final = "holder-"
# From its creation to its first words a note takes less than this; one that stays empty was left by a death.
_EMPTY_S: Final = 60.0
# A machine of 1,000 cores is written down in half of this.
_MOST_BYTES: Final = 1 << 16

Holder = dict[str, Any]


class HolderNote:
    """What this process says of itself while it holds devices, or waits for the rest of them.

    For those who wait, and no more: where it cannot be written the device is held all the same.
    """

    def __init__(self, folder: Path, verb: str) -> None:
        self.parts: list[str] = []
        """The locks that it has."""
        self.descriptors: list[int] = []
        self._path = folder / f"{_PREFIX}{secrets.token_hex(8)}.json"
        self._facts = {
            "pid": os.getpid(),
            "process": process_mark(os.getpid()),
            "thread": threading.get_native_id(),
            "verb": verb,
        }

    def write(self) -> None:
        """Say which parts are held by now."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        with suppress(OSError):
            if not self.descriptors:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                self.descriptors.append(os.open(self._path, flags, 0o600))
                # Who reads it has it for a moment.
                fcntl.flock(self.descriptors[0], fcntl.LOCK_EX)
            data = orjson.dumps({**self._facts, "since": since, "parts": self.parts})
            os.ftruncate(self.descriptors[0], 0)
            os.pwrite(self.descriptors[0], data, 0)

    def remove(self) -> None:
        if self.descriptors:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            unlock(self.descriptors.pop())

    def is_of_same_thread(self, holder: Mapping[str, Any]) -> bool:
        """Whether this thread, which asks, has the device itself: it would wait for itself."""
        return all(holder.get(fact) == self._facts[fact] for fact in ("pid", "process", "thread"))


def holders_in(folder: Path) -> list[Holder]:
    """All that hold something, the first to begin first; notes of the dead are removed."""
    names: list[str] = []
    with suppress(OSError):
        names = [name for name in os.listdir(folder) if name.startswith(_PREFIX)]
    found = []
    for name in names:
        with suppress(OSError):
            if (holder := _read(folder / name)) is not None:
                found.append(holder)
    return sorted(found, key=lambda one: (str(one.get("since")), str(one.get("pid"))))


def _read(path: Path) -> Holder | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, _MOST_BYTES)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _parsed(data)
        if data or time.time() - os.fstat(descriptor).st_mtime > _EMPTY_S:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
    return None


def _parsed(data: bytes) -> Holder | None:
    try:
        found = orjson.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("parts"), list) else None


def holder_named(holder: Mapping[str, Any]) -> str:
    """A holder in words, for those who wait: `profile (process 12)`, `profile (process 12) and 2 more`."""
    more = f" and {holder['more']} more" if holder.get("more") else ""
    process = f" (process {holder['pid']})" if "pid" in holder else ""
    return f"{holder.get('verb') or 'another run'}{process}{more}"


class Ancestry:
    """The processes that this one runs below, and is part of the work of."""

    def __init__(self) -> None:
        # A job is work of its own, whatever the process that started it does meanwhile; but it is part of
        # what that process is part of.
        job, owner = job_process(), job_owner()
        self._above: list[tuple[int, str]] = []
        pid = os.getpid()
        while pid and (pid != job or owner is not None):
            try:
                pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                break
            mark = process_mark(pid)
            if owner is None or (owner.get("pid"), owner.get("process")) != (pid, mark):
                self._above.append((pid, mark))

    def among(self, holders: Sequence[Holder]) -> list[Holder]:
        """Those of the holders that this process runs below, the nearest first."""
        # Not by number alone: processes of several containers may meet here, each with numbers of its own.
        by_process = {(one.get("pid"), one.get("process")): one for one in holders}
        return [by_process[one] for one in self._above if one in by_process]
