"""The handbook's full-text index: checklist items and the user's documents in one SQLite file of the store.

One transaction a document, so that a reader or a crash sees the old version of it or the new.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from trackside.handbook.items import FAMILIES, FOLDER, Item, items
from trackside.handbook.library import DocumentKind, Passage, Source, modified_ns, split
from trackside.handbook.lookup import nearest
from trackside.handbook.query import Results, search, terms
from trackside.records.errors import TracksideError, printable
from trackside.store.files import store_errors
from trackside.store.runs import RunStore

__all__ = ["FILE_NAME", "Added", "Document", "Index", "Outcome"]

FILE_NAME: Final = "handbook.sqlite"

_SCHEMA_VERSION: Final = 2
# Without tags in a column of their own; brought up to date by the first search or change.
_OLD_VERSION: Final = 1
# "trks": tells our file from a database of some other program.
_APPLICATION_ID: Final = 0x74726B73

# Another process writes one document at a time, which takes a second at most on a slow disk.
_BUSY_SECONDS: Final = 30.0

_PASSAGES: Final = (
    # Tags are found and never shown: a hit's snippet is of its text.
    "CREATE VIRTUAL TABLE passages USING fts5(name, heading, text, tags,"
    " tokenize = 'porter unicode61 remove_diacritics 2')",
    # A word in a title says more about a passage than one in its text.
    "INSERT INTO passages (passages, rank) VALUES ('rank', 'bm25(3.0, 5.0, 1.0, 1.0)')",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)

# A rollback journal and not WAL, which fails on network file systems, where clusters keep their homes.
_SCHEMA: Final = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    # A path need not be text, so it is kept as bytes.
    "CREATE TABLE documents (id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, kind TEXT NOT NULL,"
    " sha256 TEXT NOT NULL, bytes INTEGER NOT NULL, modified_ns INTEGER NOT NULL, pages INTEGER,"
    " passages INTEGER NOT NULL, added TEXT NOT NULL)",
    "CREATE TABLE places (id INTEGER PRIMARY KEY, document INTEGER REFERENCES documents(id), item TEXT,"
    " line INTEGER, page INTEGER)",
    "CREATE INDEX places_of_document ON places (document)",
    *_PASSAGES,
    f"PRAGMA application_id = {_APPLICATION_ID}",
)

_UPDATE: Final = (
    "ALTER TABLE passages RENAME TO old_passages",
    *_PASSAGES,
    "INSERT INTO passages (rowid, name, heading, text) SELECT rowid, name, heading, text FROM old_passages"
    " WHERE rowid IN (SELECT id FROM places WHERE document NOT NULL)",
    "DROP TABLE old_passages",
    # The checklist is read again.
    "DELETE FROM places WHERE item NOT NULL",
    "DELETE FROM facts WHERE name = 'checklist'",
)
"""From the old version to this one; the documents stay, whether or not their files still exist."""

Outcome = Literal["added", "replaced", "unchanged"]


@dataclass(frozen=True)
class Added:
    """What became of one document."""

    outcome: Outcome
    document: Document


@dataclass(frozen=True)
class Document:
    """A file of the user's own that is in the index."""

    path: Path
    kind: DocumentKind
    sha256: str
    size: int
    modified_ns: int
    passages: int
    pages: int | None
    """PDF: how many have text."""
    added: str
    """UTC, ISO 8601."""

    @property
    def state(self) -> Literal["as added", "changed", "gone"]:
        """What the file is now, by size and time of change alone."""
        try:
            now = self.path.stat()
        except OSError:
            return "gone"
        same = (now.st_size, modified_ns(now)) == (self.size, self.modified_ns)
        return "as added" if same else "changed"


class Index:
    """The index below one root; a context manager.

    Args:
        root: the store's folder; by default that of `RunStore`.
        clock: nanoseconds since the epoch; injected by tests.
        checklist: the items, and the hash of where they come from; injected by tests.

    Every method raises TracksideError of kind `store` when the file is damaged or the disk refuses.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        clock: Callable[[], int] = time.time_ns,
        checklist: Callable[[], Sequence[Item]] = lambda: tuple(items().values()),
        checklist_hash: Callable[[], str] = lambda: _files_hash(),
    ) -> None:
        self._store = RunStore(root)
        self.path = self._store.root / FILE_NAME
        self._clock = clock
        self._checklist = checklist
        self._checklist_hash = checklist_hash
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the file; the next call opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def add(self, source: Source, tell: Callable[[int, int], None] = lambda done, pages: None) -> Added:
        """Puts a document in, in place of what was there under its path; the same content is left alone.

        Raises:
            Refusal: it cannot be read; an earlier version stays.
        """
        known = self._document(source.path)
        if known is not None and known.sha256 == source.sha256:
            if known.modified_ns != source.modified_ns:
                with self._writing() as connection:
                    connection.execute(
                        "UPDATE documents SET modified_ns = ? WHERE path = ? AND sha256 = ?",
                        (source.modified_ns, os.fsencode(source.path), source.sha256),
                    )
            return Added("unchanged", known)
        # Before the transaction: a long PDF takes minutes, and others want to write too.
        passages = split(source, tell)
        document = Document(
            source.path,
            source.kind,
            source.sha256,
            len(source.data),
            source.modified_ns,
            len(passages),
            len(passages) if source.kind == "pdf" else None,
            datetime.fromtimestamp(self._clock() // 1_000_000_000, UTC).isoformat(),
        )
        with self._writing() as connection:
            replaced = _delete_document(connection, source.path)
            _insert_document(connection, document, passages)
        return Added("replaced" if replaced else "added", document)

    def remove(self, path: Path) -> Document:
        """Takes a document out; the file itself is left alone.

        Raises:
            TracksideError: kind `not-found`, when it is not in the index.
        """
        found = self._document(path)
        if found is None:
            paths = {str(document.path): document.path.name for document in self.documents()}
            close = nearest(path.name, paths.values())
            near = [whole for whole, name in paths.items() if name in close]
            nearby = f"; nearest: {', '.join(near[:5])}" if near else ""
            raise TracksideError(
                "not-found",
                f"found no {path} among the {len(paths)} documents in {self.path}; needed: one that was added"
                f"{nearby}",
                "trackside handbook documents",
            )
        with self._writing() as connection:
            _delete_document(connection, path)
        return found

    def documents(self) -> tuple[Document, ...]:
        """All documents, by path."""
        with self._reading() as connection:
            if connection is None:
                return ()
            rows = connection.execute(f"SELECT {_COLUMNS} FROM documents ORDER BY path").fetchall()
        return tuple(_document(row) for row in rows)

    def search(self, words: Sequence[str], limit: int | None = 10) -> Results:
        """Passages that have all the words, best first; those with some of them where none has all.

        Any text is a word: nothing in it is taken for search syntax. The last one may be only begun.

        Raises:
            TracksideError: kind `usage`, when there is no word among the words, or too many.
        """
        checked = terms(words)
        with self._errors("search"), self._with_checklist() as connection:
            return search(connection, checked, limit)

    def _document(self, path: Path) -> Document | None:
        with self._reading() as connection:
            if connection is None:
                return None
            query = f"SELECT {_COLUMNS} FROM documents WHERE path = ?"
            row = connection.execute(query, (os.fsencode(path),)).fetchone()
        return None if row is None else _document(row)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """The open index; None where there is none yet: reading creates nothing."""
        with self._errors("read"):
            yield self._open() if self._exists() else None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, in an index that is created if need be."""
        with self._errors("write"):
            self._store.create_root()
            connection = self._open()
            with _transaction(connection):
                _bring_up_to_date(connection)
                yield connection

    @contextmanager
    def _with_checklist(self) -> Iterator[sqlite3.Connection]:
        """The index with the checklist as it is now: in the file where there is one, else in memory."""
        if self._exists():
            connection = self._open()
            if self._made_fresh(connection):
                yield connection
                return
            copy = sqlite3.connect(":memory:", isolation_level=None)
            connection.backup(copy)
        else:
            copy = _in_memory()
        try:
            with _transaction(copy):
                _bring_up_to_date(copy)
                self._put_checklist(copy)
            yield copy
        finally:
            copy.close()

    def _made_fresh(self, connection: sqlite3.Connection) -> bool:
        """Whether the file has the checklist of today; one that cannot be written keeps its own."""
        current = _version(connection) == (_APPLICATION_ID, _SCHEMA_VERSION)
        if current and _fact(connection, "checklist") == self._checklist_hash():
            return True
        try:
            with _transaction(connection):
                _bring_up_to_date(connection)
                self._put_checklist(connection)
        except sqlite3.OperationalError as error:
            if _primary_code(error) in _REFUSED_CODES:
                return False
            raise
        return True

    def _put_checklist(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM passages WHERE rowid IN (SELECT id FROM places WHERE item NOT NULL)")
        connection.execute("DELETE FROM places WHERE item NOT NULL")
        for item in self._checklist():
            place = connection.execute("INSERT INTO places (item) VALUES (?)", (item.id,)).lastrowid
            connection.execute(
                "INSERT INTO passages (rowid, name, heading, text, tags) VALUES (?, ?, ?, ?, ?)",
                (place, item.id, item.title, _item_text(item), _item_tags(item)),
            )
        connection.execute("INSERT OR REPLACE INTO facts VALUES ('checklist', ?)", (self._checklist_hash(),))

    def _exists(self) -> bool:
        # An empty file is what a process leaves that was killed before its first transaction.
        try:
            return self.path.stat().st_size > 0
        except FileNotFoundError:
            return False

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                self._check(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _check(self, connection: sqlite3.Connection) -> None:
        """Creates the tables in a new file; refuses one that is not ours."""
        if _version(connection) == (0, 0):
            with _transaction(connection):
                # Asked again: two processes may both have found an empty file.
                (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                if not tables:
                    _create_tables(connection)
        application, version = _version(connection)
        if application != _APPLICATION_ID or version not in (_OLD_VERSION, _SCHEMA_VERSION):
            what = f"version {version}" if application == _APPLICATION_ID else "a database of another program"
            raise TracksideError(
                "store",
                f"found {what} in {self.path}; needed: a handbook index of version {_SCHEMA_VERSION}",
                f"move or delete {self.path}, then add the documents again: trackside handbook add FILE",
            )

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """Turns what SQLite and the operating system refuse into errors with the file and the way out."""
        try:
            with store_errors(self.path, action):
                yield
        except (sqlite3.ProgrammingError, sqlite3.InterfaceError):
            raise  # a defect of ours
        except sqlite3.Error as error:
            # Closed, so that nothing half done or half read is used again.
            self.close()
            raise self._explained(error, action) from error

    def _explained(self, error: sqlite3.Error, action: str) -> TracksideError:
        code = _primary_code(error)
        if "fts5" in str(error) and "no such module" in str(error):
            return TracksideError(
                "unsupported",
                f"found SQLite {sqlite3.sqlite_version} without FTS5; needed: its full-text search",
                "use a Python whose sqlite3 module has FTS5, as those of python.org, conda and Debian have",
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return TracksideError(
                "store",
                f"cannot {action} {self.path}: another process has been writing for {_BUSY_SECONDS:g} s",
                "wait until the other `trackside handbook` has ended, then try again",
            )
        if code in _REFUSED_CODES:
            return TracksideError(
                "store",
                f"cannot {action} {self.path}: {error}",
                "make the folder writable and free some space, or set TRACKSIDE_HOME to a folder that is",
            )
        return TracksideError(
            "store",
            f"cannot {action} {self.path}: the file is damaged ({printable(str(error))})",
            f"delete {self.path}, then add the documents again: trackside handbook add FILE",
        )


_COLUMNS: Final = "path, kind, sha256, bytes, modified_ns, passages, pages, added"

_REFUSED_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
    }
)


def _primary_code(error: sqlite3.Error) -> int:
    # The low byte; the others say more about the same. Errors of Python's own module have no code.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _create_tables(connection: sqlite3.Connection) -> None:
    for statement in _SCHEMA:
        connection.execute(statement)


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Inside a transaction, since another process may have done it just now."""
    if _version(connection) == (_APPLICATION_ID, _OLD_VERSION):
        for statement in _UPDATE:
            connection.execute(statement)


def _in_memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    _create_tables(connection)
    return connection


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    # Immediate: a transaction that begins by reading could not wait for another writer, only fail.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite may have rolled back by itself, as it does on a full disk.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version


def _fact(connection: sqlite3.Connection, name: str) -> str | None:
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def _files_hash() -> str:
    """Of the checklist's files, which are read in a hundredth of the time that it takes to parse them."""
    whole = hashlib.sha256()
    for name in FAMILIES:
        whole.update(hashlib.sha256((FOLDER / f"{name}.toml").read_bytes()).digest())
    return whole.hexdigest()


def _item_text(item: Item) -> str:
    return "\n".join((item.why, item.when, item.check, item.fix, *item.do, item.effect))


def _item_tags(item: Item) -> str:
    return " ".join((*item.signals, *item.workloads, *item.needs))


def _document(row: tuple[Any, ...]) -> Document:
    path, *rest = row
    return Document(Path(os.fsdecode(path)), *rest)


def _delete_document(connection: sqlite3.Connection, path: Path) -> bool:
    row = connection.execute("SELECT id FROM documents WHERE path = ?", (os.fsencode(path),)).fetchone()
    if row is None:
        return False
    connection.execute("DELETE FROM passages WHERE rowid IN (SELECT id FROM places WHERE document = ?)", row)
    connection.execute("DELETE FROM places WHERE document = ?", row)
    connection.execute("DELETE FROM documents WHERE id = ?", row)
    return True


def _insert_document(connection: sqlite3.Connection, document: Document, passages: Sequence[Passage]) -> None:
    values = (
        os.fsencode(document.path),
        document.kind,
        document.sha256,
        document.size,
        document.modified_ns,
        document.passages,
        document.pages,
        document.added,
    )
    marks = ", ".join("?" for _ in values)
    number = connection.execute(f"INSERT INTO documents ({_COLUMNS}) VALUES ({marks})", values).lastrowid
    name = printable(document.path.name)
    for passage in passages:
        place = connection.execute(
            "INSERT INTO places (document, line, page) VALUES (?, ?, ?)", (number, passage.line, passage.page)
        ).lastrowid
        connection.execute(
            "INSERT INTO passages (rowid, name, heading, text) VALUES (?, ?, ?, ?)",
            (place, name, passage.heading, passage.text),
        )
