"""The SQLite file of the index: what is wrong with it, and what is done about that.

Imported only when runs are listed: a Python without SQLite can measure and list all the same.
"""

import os
import secrets
import sqlite3
import zlib
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from trackside.records.errors import printable
from trackside.store.entry import KEPT, Entry
from trackside.store.files import folder_lock

__all__ = ["IndexFile", "Kept", "Signature"]

# Counts up with every change of what is kept or how it is read; an older index is then made anew.
_VERSION: Final = 3
# "trkr": tells our file from a database of some other program.
_APPLICATION_ID: Final = 0x74726B72

# Only for the moment in which another process creates the file: the runs can always be read without it.
_BUSY_SECONDS: Final = 0.5

# The constraints are for `quick_check`, which finds by them what a flipped bit made of a value.
_TIME: Final = "INTEGER NOT NULL CHECK (typeof({0}) = 'integer' AND {0} >= 0)"
_COLUMNS: Final = (
    "id, verb, started_ns, order_ns, state, verdict, certified, about, inode, bytes, modified_ns, crc"
)
_TABLE: Final = (
    "CREATE TABLE runs (id TEXT PRIMARY KEY, verb TEXT NOT NULL CHECK (typeof(verb) = 'text'),"
    f" started_ns {_TIME.format('started_ns')}, order_ns {_TIME.format('order_ns')},"
    " state TEXT NOT NULL CHECK (state IN ('done', 'failed')), verdict TEXT,"
    " certified INTEGER CHECK (certified IN (0, 1)), about TEXT,"
    " inode INTEGER NOT NULL, bytes INTEGER NOT NULL, modified_ns INTEGER NOT NULL,"
    " crc INTEGER NOT NULL) WITHOUT ROWID"
)

Signature: TypeAlias = tuple[int, int, int]
"""What record.json was when it was read."""
Kept: TypeAlias = dict[str, tuple[Any, ...]]
"""Id → the eight fields of an entry, the three of the signature, and a checksum of both."""


# Python's module lets out two more: a message that is no text, and a size without end in a damaged file.
_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError, MemoryError)


class _Unusable(Exception):
    """The index cannot be used as it is; the message says why, for the remark."""


class _Damaged(_Unusable):
    """It is no database of ours, or a broken one."""


class IndexFile:
    """The file at a path. No connection outlives a call: processes that list also fork.

    Args:
        path: where it is, or will be.
        remark: gets one sentence when it cannot be used, or had to be put aside.
    """

    def __init__(self, path: Path, remark: Callable[[str], None]) -> None:
        self.path = path
        self._remark = remark

    def read(self) -> Kept:
        """What the index says; nothing where it is not there or of no use, so that all files are read."""
        inode = self._inode()
        if inode is None:
            return {}
        try:
            with closing(self._connected("rw")) as connection:
                if _version(connection) != (_APPLICATION_ID, _VERSION):
                    self._refuse_newer(connection)
                    return {}
                (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if state != "ok":
                    raise _Damaged(state)
                kept = {row[0]: row for row in connection.execute(f"SELECT {_COLUMNS} FROM runs")}
                if any(row[-1] != _crc(row[:-1]) for row in kept.values()):
                    raise _Damaged("a row is not as it was written")
                return kept
        except _Damaged as error:
            self._set_aside(inode, error)
        except _Unusable as error:
            self._remark(str(error))
        except _ERRORS as error:
            if _is_damage(error):
                self._set_aside(inode, error)
            else:
                self._remark(self._unused(error))
        return {}

    def write(self, fresh: Iterable[tuple[Entry, Signature]], gone: Iterable[str]) -> None:
        """Writes what was found, if that is possible now; the next list tries again."""
        inode = self._inode()
        try:
            with closing(self._connected("rwc")) as connection:
                self._refuse_newer(connection)
                connection.execute("PRAGMA journal_mode = WAL")
                # A commit that a power cut takes away is found again in the files.
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute("BEGIN IMMEDIATE")
                if _version(connection) != (_APPLICATION_ID, _VERSION):
                    _create(connection)
                connection.executemany("DELETE FROM runs WHERE id = ?", ((run_id,) for run_id in gone))
                connection.executemany(
                    f"INSERT OR REPLACE INTO runs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (_row(entry, signature) for entry, signature in fresh),
                )
                connection.execute("COMMIT")
        except _Unusable:
            return  # Said when it was read.
        except _ERRORS as error:
            if _is_damage(error) and inode is not None:
                self._set_aside(inode, error)
            # Another process writes the same at this moment; nobody needs to know.
            elif _code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                self._remark(self._unused(error))

    def _inode(self) -> int | None:
        try:
            return os.stat(self.path).st_ino
        except OSError:
            return None

    def _connected(self, mode: str) -> sqlite3.Connection:
        # As a URI, since only there a file can be opened that must exist. It takes any bytes in a name.
        address = f"{self.path.as_uri()}?mode={mode}"
        return sqlite3.connect(address, timeout=_BUSY_SECONDS, isolation_level=None, uri=True)

    def _refuse_newer(self, connection: sqlite3.Connection) -> None:
        application, version = _version(connection)
        if application == _APPLICATION_ID and version > _VERSION:
            raise _Unusable(
                f"{self.path} is of a newer Trackside (version {version}, this one knows {_VERSION}): it is "
                "left alone, and the runs' own files are read instead, which takes longer"
            )
        if application != _APPLICATION_ID and (application or version or _has_tables(connection)):
            raise _Damaged("a database of another program")

    def _unused(self, error: Exception) -> str:
        return (
            f"the index {self.path} cannot be used ({printable(str(error))}): the runs' own files are read "
            "instead, which takes longer"
        )

    def _set_aside(self, inode: int, error: Exception) -> None:
        """Keeps the damaged file under another name; the next write makes a new one from the runs' files."""
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        aside = self.path.with_name(f"{self.path.name}.corrupt-{stamp}-{secrets.token_hex(2)}")
        try:
            with folder_lock(self.path.parent, wait=False):
                # Not the new one of another process that found the same.
                if os.stat(self.path).st_ino != inode:
                    return
                os.rename(self.path, aside)
                # Last, and after the file that they belong to: without it SQLite takes them for nothing.
                for suffix in ("-wal", "-shm"):
                    if os.path.exists(f"{self.path}{suffix}"):
                        os.rename(f"{self.path}{suffix}", f"{aside}{suffix}")
        except FileNotFoundError:
            return
        except OSError as refusal:
            self._remark(
                f"the index {self.path} is damaged ({printable(str(error))}) and cannot be moved "
                f"({refusal.strerror}): the runs' own files are read instead, which takes longer"
            )
            return
        self._remark(
            # The path last: an assistant's answers cut what is long.
            f"the index was damaged ({printable(str(error))}): no run is lost, and a new one is made from "
            f"the runs' own files; it is kept as {aside}"
        )


def _row(entry: Entry, signature: Signature) -> tuple[Any, ...]:
    facts: tuple[Any, ...] = tuple(entry)[KEPT]
    # SQLite has no booleans, and the checksum is of what it gives back.
    row = (*(int(fact) if isinstance(fact, bool) else fact for fact in facts), *signature)
    return (*row, _crc(row))


def _crc(row: tuple[Any, ...]) -> int:
    """SQLite itself does not notice when a letter of a verdict becomes another."""
    try:
        return zlib.crc32(orjson.dumps(row))
    except TypeError:
        return -1  # Bytes where there was text.


def _create(connection: sqlite3.Connection) -> None:
    """Inside a transaction, in place of what an older release kept."""
    connection.execute("DROP TABLE IF EXISTS runs")
    connection.execute(_TABLE)
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {_VERSION}")


def _version(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version


def _has_tables(connection: sqlite3.Connection) -> bool:
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return bool(tables)


def _code(error: Exception) -> int:
    # The low byte; the others say more about the same. Errors of Python's own module have no code.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _is_damage(error: Exception) -> bool:
    # SQLITE_ERROR: "no such table" or "no such column" under our version number. No code: what is no text.
    return _code(error) in (0, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
