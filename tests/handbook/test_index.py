"""The index: what is found and where, what survives, and what is said of a bad file or a full disk."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.handbook.databases import read_only
from tests.handbook.pdfs import encrypted, pdf

from trackside.handbook.index import FILE_NAME, Index
from trackside.handbook.items import Item, items
from trackside.handbook.library import Refusal, load
from trackside.handbook.query import Hit
from trackside.records.errors import TracksideError

# 2026-11-16 08:00:00 UTC
NOW_NS = 1_794_816_000_000_000_000

Put = Callable[..., str]


@pytest.fixture
def index(home: Path) -> Iterator[Index]:
    with Index(home, clock=lambda: NOW_NS) as opened:
        yield opened


@pytest.fixture
def put(index: Index, tmp_path: Path) -> Put:
    """Writes a file and adds it; returns what became of it."""

    def write_and_add(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return index.add(load(path.resolve())).outcome

    return write_and_add


def own(index: Index, *words: str) -> list[Hit]:
    """Hits in documents alone."""
    return [hit for hit in index.search(words, None).hits if hit.file]


def test_without_documents_the_checklist_is_searched_and_nothing_is_created(index: Index, home: Path) -> None:
    found = index.search(["kv", "cache", "fp8"])
    assert (found.matched, found.documents) == ("all", 0)
    assert "kv-cache.fp8" in [hit.item for hit in found.hits]
    assert index.documents() == ()
    assert not home.exists()


def test_every_item_is_found_by_the_words_of_its_title(index: Index, put: Put) -> None:
    put("own.md", "nothing of the kind")
    for item in items().values():
        found = index.search(item.title.split(), 3)
        assert item.id in [hit.item for hit in found.hits], item.title


def test_an_added_document_is_found_with_file_heading_and_line(
    index: Index, put: Put, tmp_path: Path
) -> None:
    assert put("guide.md", "# Serving\n\n## Batching\n\nFirst.\nThe zephyr setting matters.\n") == "added"
    (hit,) = own(index, "zephyr")
    assert (hit.kind, hit.file, hit.item) == ("markdown", (tmp_path / "guide.md").resolve(), None)
    assert (hit.heading, hit.line, hit.page) == ("Serving > Batching", 6, None)
    ((start, end),) = hit.marks
    assert hit.snippet[start:end] == "zephyr"
    assert hit.snippet == "## Batching First. The zephyr setting matters."


def test_a_pdf_is_found_with_its_page(index: Index, put: Put) -> None:
    put("manual.pdf", pdf(["intro", "the zephyr unit", "end"]))
    (hit,) = own(index, "zephyr")
    assert (hit.kind, hit.page, hit.line) == ("pdf", 2, None)
    (document,) = index.documents()
    assert (document.kind, document.pages, document.passages) == ("pdf", 3, 3)


def test_a_document_is_found_by_its_name(index: Index, put: Put) -> None:
    put("zephyr-guide.txt", "something else")
    assert len(own(index, "zephyr")) == 1


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("the caches are flushed", ["flushing"]),
        ("use CUDA_LAUNCH_BLOCKING here", ["cuda_launch_blocking"]),
        ("use CUDA_LAUNCH_BLOCKING here", ["CUDA_LAUNCH_BL"]),
        ("run with --zephyr-ratio=0.9 now", ["--zephyr-ratio=0.9"]),
        ("a Größe and a café", ["größe", "cafe"]),
        ("cafe\u0301 decomposed", ["café"]),
        ("café composed", ["cafe\u0301"]),
        ("zephyr winds", ["zeph"]),
        ("zephyrisation of weights", ["weights", "zephyrization"]),
        ("zephyrization of weights", ["weights", "zephyrisa"]),
        ("we zephyrise them", ["zephyriza"]),
        ("two words apart and together", ["together", "words", "++"]),
    ],
)
def test_words_are_found_as_people_type_them(index: Index, put: Put, text: str, asked: list[str]) -> None:
    put("a.txt", text)
    assert len(own(index, *asked)) == 1


def test_only_the_last_word_may_be_begun(index: Index, put: Put) -> None:
    put("a.txt", "zephyr qwindow")
    assert len(own(index, "zephyr", "qwin")) == 1
    assert index.search(["qwin", "zephyr"]).matched == "some"


def test_a_phrase_of_joined_words_stays_together(index: Index, put: Put) -> None:
    put("a.txt", "zephyr beta alpha")
    assert own(index, "zephyr_alpha", "beta") != own(index, "zephyr-beta", "alpha")
    assert index.search(["zephyr.beta"]).total == 1
    assert index.search(["zephyr.alpha"]).total == 0


HOSTILE = [
    '"',
    'zephyr"',
    '""" OR ""',
    "zephyr*",
    "zephyr AND",
    "NOT zephyr",
    "NEAR(zephyr, 2)",
    "text : zephyr",
    "{name text}: zephyr",
    "^zephyr",
    "zephyr + zephyr",
    "(zephyr",
    "zephyr)",
    "-zephyr",
    "zephyr; DROP TABLE documents; --",
    "zephyr' OR '1'='1",
    "zephyr\\",
    "%_zephyr",
    "zephyr\udcff",
    "zephyr \U0001f680",
]


@pytest.mark.parametrize("asked", HOSTILE)
def test_no_punctuation_is_taken_for_syntax(index: Index, put: Put, asked: str) -> None:
    put("a.txt", "near zephyr")
    if any(c.isalnum() for c in asked.replace("OR", "")):
        assert len(own(index, asked)) == 1
        assert len(own(index, *asked.split())) == 1
    assert len(index.documents()) == 1


@pytest.mark.parametrize("words", [[], [""], ["++", '"']])
def test_a_search_without_a_word_is_wrong_use(index: Index, words: list[str]) -> None:
    with pytest.raises(TracksideError, match="no letter or digit") as caught:
        index.search(words)
    assert caught.value.kind == "usage"


def test_more_words_than_anyone_asks_are_wrong_use_and_as_many_as_allowed_work(index: Index) -> None:
    assert index.search([f"synchronisation{n}" for n in range(64)]).total == 0
    with pytest.raises(TracksideError, match="found 65 words; needed: at most 64"):
        index.search(["w"] * 65)


def test_passages_with_all_words_come_alone_and_those_with_some_only_where_there_are_none(
    index: Index, put: Put
) -> None:
    put("both.txt", "zephyr qwindow")
    put("one.txt", "zephyr alone")
    both = index.search(["zephyr", "qwindow"])
    assert (both.matched, both.total) == ("all", 1)
    some = index.search(["zephyr", "qwindow", "xylophone"])
    assert (some.matched, some.total) == ("some", 2)
    assert some.hits[0].file is not None
    assert some.hits[0].file.name == "both.txt"
    none = index.search(["xylophone"])
    assert (none.matched, none.total, none.hits) == ("none", 0, ())


def test_a_word_in_a_heading_ranks_before_one_in_a_text(index: Index, put: Put) -> None:
    put("a.md", "# Other\n\nzephyr here, and some more words\n")
    put("b.md", "# Zephyr\n\nnothing here but some more words\n")
    assert [hit.heading for hit in own(index, "zephyr")] == ["Zephyr", "Other"]
    scores = [hit.score for hit in own(index, "zephyr")]
    assert scores == sorted(scores, reverse=True)


def test_the_limit_cuts_the_hits_and_not_the_count(index: Index, put: Put) -> None:
    for number in range(5):
        put(f"{number}.txt", f"zephyr {number}")
    found = index.search(["zephyr"], 2)
    assert (len(found.hits), found.total, found.documents) == (2, 5, 5)
    assert len(index.search(["zephyr"], None).hits) == 5


def test_a_thousand_pages_give_each_needle_with_its_page(index: Index, put: Put) -> None:
    filler = "The memory of a kernel is read in blocks, and threads of a warp share what they load. " * 20
    for book in range(4):
        put(f"book{book}.pdf", pdf([f"{filler}\nneedle{book}x{page}" for page in range(250)]))
    assert sum(document.passages for document in index.documents()) == 1_000
    for book, page in ((0, 0), (1, 123), (2, 249), (3, 7)):
        found = index.search([f"needle{book}x{page}", "warp"])
        places = [(hit.file and hit.file.name, hit.page) for hit in found.hits]
        assert (found.matched, places) == ("all", [(f"book{book}.pdf", page + 1)])
    exact = index.search(["needle2x137"])
    assert [(hit.file and hit.file.name, hit.page) for hit in exact.hits] == [("book2.pdf", 138)]
    assert index.search(["needle"], 10).total == 1_000


def test_the_same_content_is_left_alone_and_a_change_replaces_it(index: Index, put: Put) -> None:
    assert put("a.md", "zephyr one") == "added"
    assert put("a.md", "zephyr one") == "unchanged"
    assert put("a.md", "qwindow two") == "replaced"
    assert own(index, "zephyr") == []
    assert len(own(index, "qwindow")) == 1
    assert len(index.documents()) == 1


def test_the_time_of_adding_is_kept_in_utc(index: Index, put: Put) -> None:
    put("a.md", "x y z")
    assert index.documents()[0].added == "2026-11-16T08:00:00+00:00"


def test_a_document_says_whether_its_file_is_still_what_was_added(
    index: Index, put: Put, tmp_path: Path
) -> None:
    put("a.md", "one")
    path = tmp_path / "a.md"
    assert index.documents()[0].state == "as added"
    os.utime(path, ns=(1, 1))
    assert index.documents()[0].state == "changed"
    assert put("a.md", "one") == "unchanged"
    assert index.documents()[0].state == "as added"
    path.write_text("longer than before")
    assert index.documents()[0].state == "changed"
    path.unlink()
    assert index.documents()[0].state == "gone"


@pytest.mark.parametrize(
    "content",
    [b"\0\0", b"", b"%PDF-1.4\nnoise", encrypted(pdf(["new"]), "secret"), pdf([""])],
    ids=["binary", "empty", "damaged", "encrypted", "scanned"],
)
def test_what_cannot_be_read_leaves_the_earlier_version(index: Index, put: Put, content: bytes) -> None:
    put("a.pdf", pdf(["the zephyr unit"]))
    before = index.documents()
    with pytest.raises(Refusal):
        put("a.pdf", content)
    assert index.documents() == before
    assert len(own(index, "zephyr")) == 1


def test_a_removed_document_is_found_no_more_and_the_others_are(
    index: Index, put: Put, tmp_path: Path
) -> None:
    put("a.md", "zephyr one")
    put("b.md", "zephyr two")
    removed = index.remove((tmp_path / "a.md").resolve())
    assert removed.path.name == "a.md"
    assert [hit.file and hit.file.name for hit in own(index, "zephyr")] == ["b.md"]
    assert (tmp_path / "a.md").exists()


def test_removing_what_was_not_added_names_the_nearest(index: Index, put: Put, tmp_path: Path) -> None:
    put("tuning-guide.md", "x")
    with pytest.raises(TracksideError) as caught:
        index.remove(tmp_path / "tuning-gide.md")
    assert caught.value.kind == "not-found"
    assert str((tmp_path / "tuning-guide.md").resolve()) in caught.value.message
    with pytest.raises(TracksideError, match="among the 0 documents"):
        Index(tmp_path / "nowhere").remove(tmp_path / "a.md")


def test_a_name_that_is_no_text_is_kept_as_it_is(index: Index, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path.resolve()) + b"/\xff.txt"))
    path.write_text("zephyr")
    assert index.add(load(path)).outcome == "added"
    assert index.add(load(path)).outcome == "unchanged"
    assert [hit.file for hit in own(index, "zephyr")] == [path]
    assert index.remove(path).path == path


def test_the_checklist_in_the_file_is_never_stale(home: Path, tmp_path: Path) -> None:
    first, *_ = items().values()
    today = [replace(first, id="os.today", title="Mind the zephyr")]
    version = "1"

    def checklist() -> list[Item]:
        return today

    (tmp_path / "a.txt").write_text("qwindow")
    with Index(home, checklist=checklist, checklist_hash=lambda: version) as index:
        index.add(load(tmp_path / "a.txt"))
        assert [hit.item for hit in index.search(["zephyr"]).hits] == ["os.today"]
        today = [replace(first, id="os.tomorrow", title="Mind the gale")]
        version = "2"
        assert index.search(["zephyr"]).total == 0
        assert [hit.item for hit in index.search(["gale"]).hits] == ["os.tomorrow"]
        assert index.search(["qwindow"]).total == 1


def test_the_checklist_is_parsed_once_for_a_file(home: Path, tmp_path: Path) -> None:
    calls = []

    def checklist() -> list[Item]:
        calls.append(1)
        return list(items().values())

    (tmp_path / "a.txt").write_text("qwindow")
    for _ in range(3):
        with Index(home, checklist=checklist, checklist_hash=lambda: "1") as index:
            index.add(load(tmp_path / "a.txt"))
            index.search(["memory"])
            index.search(["cache"])
    assert len(calls) == 1


def test_a_file_that_cannot_be_written_is_searched_with_the_checklist_of_today(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("zephyr")
    with Index(home, checklist_hash=lambda: "old", checklist=lambda: []) as index:
        index.add(load(tmp_path / "a.txt"))
        assert index.search(["memory"]).total == 0
    monkeypatch.setattr(sqlite3, "connect", read_only(sqlite3.connect))
    with Index(home) as index:
        assert index.search(["memory"]).total > 5
        assert index.search(["zephyr"]).total == 1
        (tmp_path / "a.txt").write_text("changed")
        with pytest.raises(TracksideError, match="readonly") as caught:
            index.add(load(tmp_path / "a.txt"))
    assert caught.value.kind == "store"


def test_a_new_store_is_kept_out_of_git_and_an_old_one_left_alone(put: Put, home: Path) -> None:
    put("a.md", "x")
    assert (home / ".gitignore").read_text() == "*\n"
    (home / ".gitignore").unlink()
    put("b.md", "x")
    assert not (home / ".gitignore").exists()


def damaged(home: Path, content: bytes) -> TracksideError:
    home.mkdir(exist_ok=True)
    (home / FILE_NAME).write_bytes(content)
    with pytest.raises(TracksideError) as caught:
        Index(home).search(["memory"])
    return caught.value


def test_a_file_that_is_no_database_is_an_error_with_the_way_out(home: Path) -> None:
    error = damaged(home, b"not a database at all" * 100)
    assert error.kind == "store"
    assert "is damaged" in error.message
    assert error.remedy.startswith(f"delete {home / FILE_NAME}, then add the documents again")


def test_a_database_with_pages_overwritten_is_an_error_and_no_wrong_answer(
    index: Index, put: Put, home: Path
) -> None:
    for number in range(30):
        put(f"{number}.txt", f"zephyr {number} " * 100)
    index.search(["zephyr"])
    index.close()
    whole = (home / FILE_NAME).read_bytes()
    error = damaged(home, whole[:4096] + b"\xa5" * (len(whole) - 4096))
    assert (error.kind, "is damaged" in error.message) == ("store", True)


def test_a_database_cut_short_is_an_error(index: Index, put: Put, home: Path) -> None:
    put("a.txt", "zephyr " * 3_000)
    index.close()
    error = damaged(home, (home / FILE_NAME).read_bytes()[:6_000])
    assert (error.kind, "is damaged" in error.message) == ("store", True)


def test_an_empty_file_left_by_a_killed_process_is_as_good_as_none(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (home / FILE_NAME).touch()
    (tmp_path / "a.txt").write_text("zephyr")
    with Index(home) as index:
        assert index.search(["memory"]).total > 0
        assert index.add(load(tmp_path / "a.txt")).outcome == "added"
        assert index.search(["zephyr"]).total == 1


def test_a_later_version_is_not_touched(index: Index, put: Put, home: Path) -> None:
    put("a.txt", "zephyr")
    index.close()
    with sqlite3.connect(home / FILE_NAME) as connection:
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    before = (home / FILE_NAME).read_bytes()
    with pytest.raises(TracksideError, match=r"found version 3 in .*; needed: .*version 2") as caught:
        index.search(["zephyr"])
    assert caught.value.kind == "store"
    assert (home / FILE_NAME).read_bytes() == before


@pytest.mark.parametrize("words", ["first token slow", "slow start", "memory inference gpu", "training"])
def test_no_snippet_of_the_checklist_is_a_list_of_tags(index: Index, words: str) -> None:
    found = index.search(words.split(), None)
    assert found.matched == "all"
    for hit in found.hits:
        item = items()[hit.item or ""]
        tags = " ".join((*item.signals, *item.workloads, *item.needs))
        assert tags not in hit.snippet


@pytest.mark.parametrize("year", [1902, 2400])
def test_a_file_of_another_century_is_added_and_known_again(
    index: Index, put: Put, tmp_path: Path, year: int
) -> None:
    put("a.md", "zephyr")
    second = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    os.utime(tmp_path / "a.md", (second, second))
    assert index.documents()[0].state == "changed"
    index.add(load((tmp_path / "a.md").resolve()))
    assert index.documents()[0].state == "as added"
    os.utime(tmp_path / "a.md", (second + 1, second + 1))
    assert index.documents()[0].state == "changed"


def test_a_database_of_another_program_is_not_touched(home: Path) -> None:
    home.mkdir()
    with sqlite3.connect(home / FILE_NAME) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(TracksideError, match="another program"):
        Index(home).documents()


def test_a_full_disk_is_an_error_and_loses_nothing(index: Index, put: Put) -> None:
    put("a.txt", "zephyr")
    connection = index._open()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(TracksideError, match="full") as caught:
        put("b.txt", " ".join(f"word{n}" for n in range(20_000)))
    assert caught.value.kind == "store"
    assert "free some space" in caught.value.remedy
    assert [document.path.name for document in index.documents()] == ["a.txt"]
    assert len(own(index, "zephyr")) == 1


def test_a_store_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(TracksideError, match="Not a directory") as caught:
        Index(tmp_path / "file").add(load(tmp_path / "a.txt"))
    assert caught.value.kind == "store"


def test_a_folder_in_place_of_the_file_is_an_error(home: Path) -> None:
    (home / FILE_NAME).mkdir(parents=True)
    with pytest.raises(TracksideError, match="unable to open") as caught:
        Index(home).documents()
    assert caught.value.kind == "store"


def test_a_writer_that_does_not_end_is_said_to_be_the_reason(
    index: Index, put: Put, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a.txt", "zephyr")
    index.close()
    monkeypatch.setattr("trackside.handbook.index._BUSY_SECONDS", 0.01)
    other = sqlite3.connect(home / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(TracksideError, match="another process") as caught:
            put("b.txt", "x")
    finally:
        other.close()
    assert caught.value.kind == "store"
    assert put("b.txt", "x") == "added"


def test_two_writers_at_once_lose_nothing(home: Path, tmp_path: Path) -> None:
    """Each has a connection of its own, so that SQLite tells them apart as it does two processes."""
    start = threading.Barrier(2)
    failures: list[BaseException] = []

    def fill(name: str) -> None:
        try:
            start.wait()
            for number in range(15):
                path = tmp_path / f"{name}{number}.txt"
                path.write_text(f"zephyr {name} {number}")
                with Index(home) as index:
                    index.add(load(path))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=fill, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with Index(home) as index:
        assert len(index.documents()) == 30
        assert index.search(["zephyr"]).total == 30


def test_an_interrupt_in_the_middle_of_a_document_keeps_the_old_one(
    index: Index, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a.txt", "zephyr one")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # After the old version is deleted, before the new one is in.
        patch.setattr("trackside.handbook.index._insert_document", interrupted)
        with pytest.raises(KeyboardInterrupt):
            put("a.txt", "qwindow")
    assert len(own(index, "zephyr")) == 1
    assert put("a.txt", "qwindow") == "replaced"
