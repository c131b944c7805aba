"""What becomes of an index that an earlier release made, and the tags that its change was for."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from tests.handbook.databases import read_only

from trackside.handbook.index import FILE_NAME, Index
from trackside.handbook.items import Item, items
from trackside.handbook.library import load

# The tables and settings of version 1, as its releases made them.
VERSION_1 = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE documents (id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, kind TEXT NOT NULL,"
    " sha256 TEXT NOT NULL, bytes INTEGER NOT NULL, modified_ns INTEGER NOT NULL, pages INTEGER,"
    " passages INTEGER NOT NULL, added TEXT NOT NULL)",
    "CREATE TABLE places (id INTEGER PRIMARY KEY, document INTEGER REFERENCES documents(id), item TEXT,"
    " line INTEGER, page INTEGER)",
    "CREATE INDEX places_of_document ON places (document)",
    "CREATE VIRTUAL TABLE passages USING fts5(name, heading, text,"
    " tokenize = 'porter unicode61 remove_diacritics 2')",
    "INSERT INTO passages (passages, rank) VALUES ('rank', 'bm25(3.0, 5.0, 1.0)')",
    "INSERT INTO documents VALUES (1, X'2f676f6e652f612e6d64', 'markdown', 'ab', 9, 1, NULL, 1, '2026')",
    "INSERT INTO places VALUES (1, NULL, 'os.yesterday', NULL, NULL), (2, 1, NULL, 3, NULL)",
    "INSERT INTO passages (rowid, name, heading, text)"
    " VALUES (1, 'os.yesterday', 'Mind the gale', 'why qtag'), (2, 'a.md', 'Winds', 'the zephyr')",
    "INSERT INTO facts VALUES ('checklist', 'today')",
    "PRAGMA application_id = 1953655667",
    "PRAGMA user_version = 1",
)


@pytest.fixture
def version_1(home: Path) -> Path:
    """An index of the first version with an item and a document, whose file is gone."""
    home.mkdir()
    connection = sqlite3.connect(home / FILE_NAME, isolation_level=None)
    for statement in VERSION_1:
        connection.execute(statement)
    connection.close()
    return home


def today() -> list[Item]:
    first, *_ = items().values()
    return [replace(first, id="os.today", title="Mind the storm", signals=("qtag",))]


def test_an_index_of_the_first_version_keeps_its_documents_and_gets_the_checklist_anew(
    version_1: Path,
) -> None:
    with Index(version_1, checklist=today, checklist_hash=lambda: "today") as index:
        (document,) = index.documents()
        (hit,) = index.search(["zephyr"]).hits
        assert (hit.file, hit.heading, hit.line) == (document.path, "Winds", 3)
        assert [hit.item for hit in index.search(["qtag"]).hits] == ["os.today"]
        assert index.search(["gale"]).total == 0
        assert index.documents() == (document,)
    with Index(version_1, checklist=lambda: [], checklist_hash=lambda: "today") as index:
        assert index.search(["qtag"]).total == 1
        assert index.remove(document.path) == document
        assert index.search(["zephyr"]).total == 0


def test_a_document_can_be_added_first_to_an_index_of_the_first_version(
    version_1: Path, tmp_path: Path
) -> None:
    (tmp_path / "b.md").write_text("zephyr too")
    with Index(version_1) as index:
        assert index.add(load(tmp_path / "b.md")).outcome == "added"
        assert index.search(["zephyr"]).total == 2


def test_an_index_of_the_first_version_that_cannot_be_written_is_searched(
    version_1: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (version_1 / FILE_NAME).read_bytes()
    monkeypatch.setattr(sqlite3, "connect", read_only(sqlite3.connect))
    with Index(version_1, checklist=today, checklist_hash=lambda: "today") as index:
        assert index.search(["zephyr"]).total == 1
        assert [hit.item for hit in index.search(["qtag"]).hits] == ["os.today"]
        assert len(index.documents()) == 1
    assert (version_1 / FILE_NAME).read_bytes() == before


def test_an_update_that_is_interrupted_leaves_the_first_version(version_1: Path) -> None:
    def interrupted() -> list[Item]:
        raise KeyboardInterrupt

    with Index(version_1, checklist=interrupted) as index, pytest.raises(KeyboardInterrupt):
        index.search(["zephyr"])
    connection = sqlite3.connect(version_1 / FILE_NAME)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()
    with Index(version_1, checklist=today) as index:
        assert index.search(["zephyr"]).total == 1


def test_tags_are_found_and_the_snippet_is_of_the_items_text(home: Path) -> None:
    with Index(home, checklist=today) as index:
        (hit,) = index.search(["qtag", "storm"]).hits
    assert "qtag" not in hit.snippet
    assert hit.snippet.rstrip("…") in " ".join(today()[0].why.split())
