"""JSON files that survive a crash: written whole by rename, read whole or refused with the reason."""

import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from trackside.records.errors import TracksideError

__all__ = ["folder_lock", "fsync_folder", "read_json", "store_errors", "sweep_leftovers", "write_json"]


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


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        FileNotFoundError: there is no such file.
        TracksideError: kind `store`, when the file cannot be read or holds something else.
    """
    remedy = "restore the file from a copy, or delete it"
    try:
        found = orjson.loads(path.read_bytes())
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
def folder_lock(folder: Path) -> Iterator[None]:
    """One process at a time; the kernel drops the lock when the process ends, however it ends."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def store_errors(place: Path, action: str) -> Iterator[None]:
    """Turns the operating system's refusals into errors of kind `store` that name the place."""
    try:
        yield
    except OSError as error:
        raise TracksideError(
            "store",
            f"cannot {action} {place}: {error.strerror or error}",
            "make the folder writable and free some space, or set TRACKSIDE_HOME to a folder that is",
        ) from error
