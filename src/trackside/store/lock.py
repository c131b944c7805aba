"""The lock that keeps two measurements off one device, on this machine and for this user.

An flock, so that the kernel releases it with the process, however that ends; the file says who holds it.
The CPUs are one device for who may run on all of them; processes on different cores measure side by side.
"""

import errno
import fcntl
import math
import os
import re
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import orjson

from trackside.records.errors import TracksideError
from trackside.store.job_note import job_owner, job_process, note_device, note_waiting
from trackside.store.runs import process_mark

__all__ = ["DeviceLock", "gpu_key"]

# flock cannot wait with a limit, so waiting is asking again: seldom enough not to disturb a measurement under
# way, often enough that nobody notices the delay beside one of seconds.
_POLL_S: Final = 0.1
_CPUS: Final = Path("/sys/devices/system/cpu")

Holder = dict[str, Any]


def gpu_key(gpu: int | str) -> str:
    """The key of a GPU, by what NVML calls it; `compare` makes the same of it."""
    # What CUDA_VISIBLE_DEVICES names may hold anything.
    return "gpu-" + re.sub("[^A-Za-z0-9]", "-", str(gpu))


@dataclass(frozen=True)
class _Held:
    descriptor: int
    shared: bool
    taker: Holder


class DeviceLock:
    """Exclusive use of a device while the `with` block runs.

    The lock belongs to the open file: a child made by fork alone would keep it past this process's death.
    Children started through exec (subprocess, spawn) do not get it. What runs below the holder is part of
    what the holder measures, and goes ahead: a command that is compared may itself be a measurement. Those
    below one holder keep off each other.

    Args:
        key: `cpu`, the set of CPUs that this process may run on when it enters, or `gpu-<UUID>`.
        wait: True waits as long as it takes, a number that many seconds, False not at all.
        on_wait: called with the holder's facts (`pid`, `verb`, `since`, `process`; any may be missing) when
            waiting begins, and again when another process takes the holder's place.
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
        self._held: list[_Held] | None = None

    def __enter__(self) -> Self:
        if self._held is not None:
            raise RuntimeError(f"the lock on {self.key} is held by this object already")
        folder = self._folder if self._folder is not None else _lock_folder()
        deadline = self._clock() + self._limit_s
        held: list[_Held] = []
        mine = {"pid": os.getpid(), "process": process_mark(os.getpid())}
        try:
            # All in one order, which everyone keeps: nobody waits for who waits for them.
            for name, shared in _parts(self.key):
                descriptor = self._take(folder / f"{name}.lock", shared, deadline)
                held.append(_Held(descriptor, shared, mine))
                since = datetime.now(UTC).isoformat(timespec="seconds")
                _write_holder(descriptor, orjson.dumps({**mine, "verb": self._verb, "since": since}))
        except BaseException:
            _release(held)
            raise
        self._held = held
        note_device(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._held = self._held, None
        if held is not None:
            _release(held)
            note_device(-1)

    def _take(self, path: Path, shared: bool, deadline: float) -> int:
        """A descriptor that holds the lock; where a process above this one does, that of those below it."""
        announced: Holder | None = None
        while (descriptor := _try_lock(path, shared)) is None:
            holder = _read_holder(path)
            if _is_above(holder):
                path = path.with_name(f"{path.stem}.{holder['pid']}.lock")
                continue
            if self._clock() >= deadline:
                raise self._busy(holder)
            if holder != announced:
                announced = holder
                if self._on_wait is not None:
                    self._on_wait(holder)
                note_waiting(self.key, holder)
            self._sleep(_POLL_S)
        return descriptor

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


def _parts(key: str) -> list[tuple[str, bool]]:
    """The locks that make up a device, in the order in which to take them; True for one that is shared.

    Who may run on every CPU takes one lock for them all. Who may not shares that one with others like it, and
    takes one for each of its cores: sets that meet on a core exclude each other, others do not.
    """
    if key != "cpu" or not hasattr(os, "sched_getaffinity"):
        return [(key, False)]
    cpus = os.sched_getaffinity(0)
    if len(cpus) >= (os.cpu_count() or 1):
        return [(key, False)]
    return [(key, True), *((f"{key}-{core}", False) for core in sorted(set(map(_core, cpus))))]


def _core(cpu: int) -> int:
    """The first CPU on the same core: two threads of one would disturb each other."""
    try:
        found = (_CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
        return int(re.split("[,-]", found)[0])
    except (OSError, ValueError):
        return cpu


def _release(held: list[_Held]) -> None:
    for one in reversed(held):
        # The file stays: were it deleted, a second process could lock it and a third a new one.
        try:
            # A fork that leaves the block too has nothing to give back.
            if one.taker["pid"] == os.getpid():
                # A shared one may by now name another of its holders.
                if not one.shared or _is_same(_holder_in(os.pread(one.descriptor, 4096, 0)), one.taker):
                    _write_holder(one.descriptor, b"")
                # Closing alone would leave it with a fork that lives on.
                fcntl.flock(one.descriptor, fcntl.LOCK_UN)
        except OSError:
            pass
        finally:
            os.close(one.descriptor)


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    # Not by number alone: processes of several containers may meet here, each with numbers of its own.
    return all(one.get(fact) == other.get(fact) for fact in ("pid", "process"))


def _is_above(holder: Holder) -> bool:
    """Whether this process is part of what the holder measures: it runs below it."""
    if "process" not in holder:
        return False
    # A job is work of its own, whatever the process that started it does meanwhile; but it is part of what
    # that process is part of.
    job, owner = job_process(), job_owner()
    if owner is not None and _is_same(owner, holder):
        return False
    pid = os.getpid()
    while pid and (pid != job or owner is not None):
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
        if pid == holder.get("pid") and process_mark(pid) == holder["process"]:
            return True
    return False


def _try_lock(path: Path, shared: bool = False) -> int | None:
    """An open descriptor that holds the lock, or None when another process does."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _refused("open", path, error) from error
        binding = False
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
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
        return _holder_in(path.read_bytes())
    except OSError:
        return {}


def _holder_in(data: bytes) -> Holder:
    try:
        found = orjson.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _lock_folder() -> Path:
    """A folder that only this user can write, the same for every process of theirs on this machine.

    Containers that share a device but not /tmp can be given a common one in $TRACKSIDE_LOCKS.
    """
    # Not $TMPDIR, and $XDG_RUNTIME_DIR only second: a login, a cron job and a sandbox have different ones,
    # and two processes that look in different places do not see each other.
    candidates = [Path("/tmp") / f"trackside-locks-{os.getuid()}"]
    if named := os.environ.get("TRACKSIDE_LOCKS"):
        candidates = [Path(named)]
    elif runtime := os.environ.get("XDG_RUNTIME_DIR"):
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
