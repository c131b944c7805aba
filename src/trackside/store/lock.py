"""The lock that keeps two measurements off one device, on this machine and for this user.

An flock, so that the kernel releases it with the process, however that ends; the file says who holds it.
"""

import errno
import fcntl
import math
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import orjson

from trackside.records.errors import TracksideError

__all__ = ["DeviceLock"]

# flock cannot wait with a limit, so waiting is asking again: seldom enough not to disturb a measurement under
# way, often enough that nobody notices the delay beside one of seconds.
_POLL_S: Final = 0.1

Holder = dict[str, Any]


class DeviceLock:
    """Exclusive use of a device while the `with` block runs.

    The lock belongs to the open file: a child made by fork alone would keep it past this process's death.
    Children started through exec (subprocess, spawn) do not get it.

    Args:
        key: `cpu` or `gpu-<UUID>`.
        wait: True waits as long as it takes, a number that many seconds, False not at all.
        on_wait: called with the holder's facts (`pid`, `verb`, `since`; any may be missing) when waiting
            begins, and again when another process takes the holder's place.
        verb: what this process does with the device, for those who wait.
        folder: where lock files are; by default one folder per user and machine.

    Raises:
        TracksideError: on entry; kind `busy`, when someone else holds the device for longer than `wait`; kind
            `store`, when there is no safe place for lock files.
    """

    def __init__(
        self,
        key: str,
        wait: bool | float = True,
        on_wait: Callable[[Holder], None] | None = None,
        *,
        verb: str = "",
        folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", key):
            raise ValueError(f"a device key is letters, digits, dots and hyphens, not {key!r}")
        self.key = key
        self._limit_s = (math.inf if wait else 0.0) if isinstance(wait, bool) else float(wait)
        self._on_wait = on_wait
        self._verb = verb
        self._folder = folder
        self._clock = clock
        self._sleep = sleep
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        if self._descriptor is not None:
            raise RuntimeError(f"the lock on {self.key} is held by this object already")
        folder = self._folder if self._folder is not None else _lock_folder()
        path = folder / f"{self.key}.lock"
        deadline = self._clock() + self._limit_s
        announced: Holder | None = None
        while (descriptor := _try_lock(path)) is None:
            holder = _read_holder(path)
            if self._clock() >= deadline:
                raise self._busy(holder)
            if self._on_wait is not None and holder != announced:
                announced = holder
                self._on_wait(holder)
            self._sleep(_POLL_S)
        self._descriptor = descriptor
        since = datetime.now(UTC).isoformat(timespec="seconds")
        _write_holder(descriptor, orjson.dumps({"pid": os.getpid(), "verb": self._verb, "since": since}))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # The file stays: were it deleted, a second process could lock it and a third a new one.
            try:
                _write_holder(descriptor, b"")
            finally:
                os.close(descriptor)

    def _busy(self, holder: Holder) -> TracksideError:
        who = f"process {holder['pid']}" if "pid" in holder else "another process"
        doing = f" (trackside {holder['verb']})" if holder.get("verb") else ""
        since = f" since {holder['since']}" if holder.get("since") else ""
        waited = f", after {self._limit_s:g} s of waiting" if self._limit_s else ""
        return TracksideError(
            "busy",
            f"{self.key} is in use by {who}{doing}{since}{waited}",
            "wait for it to end; two measurements on one device at once would both be wrong",
        )


def _try_lock(path: Path) -> int | None:
    """An open descriptor that holds the lock, or None when another process does."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _refused("open", path, error) from error
        binding = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A cleaner of temporary files may have removed the name in between; then this lock binds nobody.
            binding = os.path.samestat(os.fstat(descriptor), os.stat(path))
        except BlockingIOError:
            return None
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _refused("lock", path, error) from error
        finally:
            if not binding:
                os.close(descriptor)
        if binding:
            return descriptor


def _refused(action: str, path: Path, error: OSError) -> TracksideError:
    return TracksideError(
        "store", f"cannot {action} the lock {path}: {error.strerror}", _remedy(path, error.errno)
    )


def _remedy(place: Path, number: int | None) -> str:
    """What helps when a lock file, or the folder for them, was refused with this errno."""
    around = place.parent
    match number:
        case errno.EMFILE | errno.ENFILE:
            return "close some files, or raise their number with `ulimit -n`"
        case errno.ENOSPC | errno.EDQUOT:
            return f"free some space in {around}"
        case errno.ENOLCK | errno.ENOSYS | errno.EOPNOTSUPP:
            return f"mount a file system at {around} that has flock, such as tmpfs"
        case errno.ENOENT:
            return f"create the folder {around}"
        case errno.EROFS:
            return f"make {around} writable for you"
        case errno.EACCES | errno.EPERM if not os.path.lexists(place):
            return f"make {around} writable for you"
        case errno.EACCES | errno.EPERM | errno.EEXIST | errno.EISDIR | errno.ELOOP:
            return f"delete {place} or make it yours"
        case _:
            return f"see that {around} is on a sound local disk"


def _write_holder(descriptor: int, data: bytes) -> None:
    # For those who wait, and no more: a full disk must not keep the device from its holder, or held.
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, data, 0)


def _read_holder(path: Path) -> Holder:
    """Who holds the lock; empty when that cannot be told, as in the instant between locking and writing."""
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _lock_folder() -> Path:
    """A folder that only this user can write, the same for every process of theirs on this machine."""
    # Not $TMPDIR, and $XDG_RUNTIME_DIR only second: a login, a cron job and a sandbox have different ones,
    # and two processes that look in different places do not see each other.
    candidates = [Path("/tmp") / f"trackside-locks-{os.getuid()}"]
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        candidates.append(Path(runtime) / "trackside-locks")
    troubles: list[str] = []
    remedies: list[str] = []
    for folder in candidates:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
        except OSError as error:
            troubles.append(f"{folder}: {error.strerror}")
            remedies.append(_remedy(folder, error.errno))
            continue
        # /tmp is everyone's: a folder of that name that another user prepared could hold links to our files.
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
            return folder
        troubles.append(f"{folder}: it belongs to someone else or others can write to it")
        remedies.append(f"remove {folder}")
    # The first place is the one that every process of this user would find.
    raise TracksideError("store", "no place for lock files: " + "; ".join(troubles), remedies[0])
