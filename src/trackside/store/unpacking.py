"""An archive of runs, unpacked with distrust: it may come from anyone.

Members are checked by what is allowed, not by what is not.
"""

import contextlib
import gzip
import hashlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import orjson

from trackside.records.errors import TracksideError, printable
from trackside.records.migrations import schema_of
from trackside.store.entry import ID, RECORD_FILE, START_FILE
from trackside.store.files import read_json

__all__ = ["MANIFEST", "MANIFEST_SCHEMA", "refused_name", "unpacked"]

MANIFEST: Final = "export.json"
MANIFEST_SCHEMA: Final = "trackside.export/1"

_MOST_MEMBERS: Final = 100_000
_DEPTH: Final = 8
# The headers before a file are a few hundred bytes. More than this wants to fill the memory: the map of a
# sparse file comes in many small reads, and packed a GB of it is a MB; and older releases of Python search a
# header in quadratic time (0.9 s for 40 kB).
_MOST_HEADERS: Final = 1 << 14
_CHUNK: Final = 1 << 18
_MOST_MANIFEST: Final = 64 << 20

# Nothing that a shell, a terminal or another file system would take for something else.
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@ -]{0,199}")


def unpacked(path: Path, folder: Path, most_bytes: int) -> list[str]:
    """Writes the runs of an archive into an empty folder and returns their ids; all of them are checked.

    Raises:
        TracksideError: kind `store`, when it is no archive of runs, or asks for what no export writes.
    """
    with _refusals(path):
        ids = _unpack(path, folder, most_bytes)
        for run_id in ids:
            _check_run(folder / run_id)
    return ids


class _Refused(Exception):
    """Something that no export writes."""


class _Bounded(io.RawIOBase):
    """A packed file, unpacked no further than a limit; of one member no more is read than was allowed."""

    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        self._file = gzip.GzipFile(fileobj=file, mode="rb")
        self._most = most_bytes
        self._allowed = _MOST_HEADERS

    def allow(self, content: int) -> None:
        """From here on: the content of this member, and the headers of the next."""
        self._allowed = content + _MOST_HEADERS

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= self._allowed:
            raise _Refused("a header is too large")
        self._allowed -= size
        self._within(self._file.tell() + size)
        with _reading():
            return self._file.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._within(offset)
        with _reading():
            return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()

    def _within(self, position: int) -> None:
        # Headers and padding come to less than a kB a member.
        if position > self._most + 1024 * _MOST_MEMBERS:
            raise _Refused(f"it unpacks to more than {self._most:,} bytes")


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Tells a disk that cannot read the archive from one that has no room for the runs."""
    try:
        yield
    except gzip.BadGzipFile:
        raise
    except OSError as error:
        raise _Refused(f"it cannot be read ({error.strerror or error})") from error


@contextlib.contextmanager
def _refusals(path: Path) -> Iterator[None]:
    remedy = "get it again from where it was exported: trackside runs export ID --out FILE.tar.gz"
    try:
        yield
    except _Refused as error:
        message = f"will not import {path}: {printable(str(error))}; nothing was imported"
        raise TracksideError("store", message, remedy) from error
    except (
        tarfile.TarError,
        EOFError,
        gzip.BadGzipFile,
        zlib.error,
        ValueError,
        OverflowError,
        # A chain of headers, each about the next.
        RecursionError,
    ) as error:
        message = f"{path} is no whole archive of runs ({printable(str(error))}); nothing was imported"
        raise TracksideError("store", message, remedy) from error


def _unpack(path: Path, staging: Path, most_bytes: int) -> list[str]:
    """Writes the archive's files below the staging folder and returns the ids."""
    manifest: dict[str, Any] | None = None
    files: dict[str, str] = {}
    left = most_bytes
    with (
        path.open("rb") as file,
        _Bounded(file, most_bytes) as bounded,
        tarfile.open(fileobj=bounded, mode="r:") as archive,
    ):
        for number, member in enumerate(archive):
            # It would keep them all, with their headers.
            archive.members = []  # type: ignore[attr-defined]
            if number >= _MOST_MEMBERS:
                raise _Refused(f"it has more than {_MOST_MEMBERS:,} files")
            if manifest is None:
                manifest = _manifest(archive, member, bounded)
                continue
            left -= member.size
            if member.size < 0 or left < 0:
                raise _Refused(f"its files come to more than {most_bytes:,} bytes")
            refusal = refused_name(member.name) or _refused_kind(member)
            if refusal is not None:
                raise _Refused(f"{member.name!r} {refusal}")
            bounded.allow(member.size)
            files[member.name] = _write_file(archive, member, staging / member.name)
    ids = sorted({name.partition("/")[0] for name in files})
    if manifest is None or not ids or manifest.get("runs") != ids or manifest.get("files") != files:
        raise _Refused(f"its files are not those that its {MANIFEST} announces")
    return ids


def _manifest(archive: tarfile.TarFile, member: tarfile.TarInfo, bounded: _Bounded) -> dict[str, Any]:
    is_manifest = _refused_kind(member) is None and member.name == MANIFEST
    if is_manifest and not 0 <= member.size <= _MOST_MANIFEST:
        raise _Refused(f"its {MANIFEST} is too large")
    bounded.allow(member.size)
    content = archive.extractfile(member) if is_manifest else None
    data = b"".join(iter(lambda: content.read(_CHUNK), b"")) if content is not None else b"null"
    found = orjson.loads(data)
    if not isinstance(found, dict) or found.get("schema") != MANIFEST_SCHEMA:
        schema = found.get("schema") if isinstance(found, dict) else None
        raise _Refused(
            f"it begins with {schema or member.name!r}, not with {MANIFEST} of schema {MANIFEST_SCHEMA}"
        )
    return found


def refused_name(name: str) -> str | None:
    """Why a name is not one that an export may have; checked by what is allowed, not by what is not."""
    first, *rest = name.split("/")
    if not ID.fullmatch(first):
        return "is not below a run's id"
    if not rest or len(rest) > _DEPTH or not all(_PART.fullmatch(part) for part in rest):
        return "is not a plain name"
    return None


def _refused_kind(member: tarfile.TarInfo) -> str | None:
    # Not isreg(), which is true of sparse files too: their size on disk is another than in the archive.
    if member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse():
        return None
    kinds = {
        tarfile.SYMTYPE: "symbolic link",
        tarfile.LNKTYPE: "hard link",
        tarfile.DIRTYPE: "folder of its own",
    }
    return f"is a {kinds.get(member.type, 'special file')}, not a plain file"


def _write_file(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> str:
    """Returns the SHA-256 of what was written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    source = archive.extractfile(member)
    assert source is not None
    try:
        file = target.open("xb")
    except FileExistsError:
        raise _Refused(f"{member.name!r} comes twice") from None
    digest = hashlib.sha256()
    with file:
        left = member.size
        while left:
            data = source.read(min(_CHUNK, left))
            if not data:
                raise _Refused(f"{member.name!r} is cut off")
            file.write(data)
            digest.update(data)
            left -= len(data)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _check_run(folder: Path) -> None:
    """Whether it is a run that a store of ours may hold."""
    try:
        record = read_json(folder / RECORD_FILE)
        start = read_json(folder / START_FILE) if (folder / START_FILE).exists() else {"id": folder.name}
    except FileNotFoundError:
        raise _Refused(f"run {folder.name} has no {RECORD_FILE}") from None
    except TracksideError as error:
        raise _Refused(f"run {folder.name}: {error.message}") from error
    if schema_of(record) is None:
        raise _Refused(f"run {folder.name}: {RECORD_FILE} is no record of Trackside")
    if record.get("status") == "running":
        raise _Refused(f"run {folder.name} has no final record")
    for found in (record.get("run_id"), start.get("id")):
        if found not in (None, folder.name):
            raise _Refused(f"run {folder.name} is really run {str(found)[:40]!r}")
