"""The files that locks are on: where they are, how one is taken, and what helps where that is refused."""

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from trackside.records.errors import TracksideError

__all__ = ["lock_folder", "try_lock", "unlock"]


def try_lock(path: Path, shared: bool = False) -> int | None:
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


def unlock(descriptor: int) -> None:
    """Gives a lock back."""
    # The file stays: were it deleted, a second process could lock it and a third a new one.
    with suppress(OSError):
        # Closing alone would leave it with a fork that lives on.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    with suppress(OSError):
        os.close(descriptor)


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


def lock_folder() -> Path:
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
