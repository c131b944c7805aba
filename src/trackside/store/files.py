"""JSON files that survive a crash: written whole by rename, read whole or refused with the reason."""

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from trackside.records.errors import TracksideError

__all__ = [
    "folder_lock",
    "fsync_folder",
    "open_unlinked",
    "read_json",
    "store_errors",
    "sweep_leftovers",
    "write_json",
]


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replaces a file so that a crash, at any point, leaves the old content or the new, never a part."""
    data = orjson.dumps(
        dict(document), option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    )
    # A name of its own for each writer: two that shared one would rename each other's half-written bytes.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def sweep_leftovers(path: Path) -> None:
    """Deletes what killed writers of this file left behind. Only for the holder of the folder's lock."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        leftover.unlink(missing_ok=True)


def open_unlinked(path: Path) -> BinaryIO:
    """Opens a regular file to read that is no link: what came with a download may link to private files.

    Raises:
        OSError: it is a link, a pipe or a folder, or cannot be opened.
    """
    # A pipe that nobody writes to would hold up who opens it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_json(path: Path, *, links: bool = True) -> dict[str, Any]:
    """A JSON object from a file; `links` says whether it may be one.

    Raises:
        FileNotFoundError: there is no such file.
        TracksideError: kind `store`, when the file cannot be read or holds something else.
    """
    remedy = "restore the file from a copy, or delete it"
    try:
        with path.open("rb") if links else open_unlinked(path) as file:
            found = orjson.loads(file.read())
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise TracksideError("store", f"cannot read {path}: {error}", remedy) from error
    if not isinstance(found, dict):
        raise TracksideError("store", f"{path} holds a {type(found).__name__}, not a JSON object", remedy)
    return found


def fsync_folder(folder: Path) -> None:
    """Makes names in a folder durable; without it a rename may be lost in a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def folder_lock(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """One process at a time; the kernel drops the lock when the process ends, however it ends.

    Raises:
        BlockingIOError: another process has it, and `wait` is False.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def store_errors(
    place: Path, action: str, elsewhere: str = "set TRACKSIDE_HOME to another folder"
) -> Iterator[None]:
    """Turns the operating system's refusals into errors of kind `store` that name the place.

    Args:
        place: what was refused.
        action: what was to be done with it.
        elsewhere: the way out that is always there.
    """
    try:
        yield
    except OSError as error:
        message = f"cannot {action} {place}: {error.strerror or error}"
        raise TracksideError("store", message, f"{_remedy(error)}, or {elsewhere}") from error


def _remedy(error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return "free some space there"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return "make it writable for you"
        case errno.ENOTDIR | errno.ENOENT | errno.EEXIST | errno.ELOOP:
            return "see that all of its path up to there are folders"
        case errno.EMFILE | errno.ENFILE:
            return "close some files, raise their number with `ulimit -n`"
        case _:
            return "see that it is on a sound disk and writable for you"
