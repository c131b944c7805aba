"""Documents: which files are found, what is read from them, and where each passage says it begins."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.handbook.pdfs import encrypted, pdf

from trackside.handbook.library import Passage, PdfReaderMissing, Refusal, find_documents, load, split

MARKDOWN = """\
Before any heading.

# Serving

Intro.

## Batching ##

Continuous batching.

```sh
# not a heading
serve
```

~~~
``` still code
# nor this
~~~

Under lines
-----------

Text | with
---|---
a | table

# Training
Last.
"""


def passages(path: Path, content: str | bytes) -> tuple[Passage, ...]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return split(load(path))


def refusal(path: Path, content: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        passages(path, content)
    return caught.value


def test_markdown_is_split_at_headings_and_each_section_knows_those_above_it(tmp_path: Path) -> None:
    found = passages(tmp_path / "a.md", MARKDOWN)
    assert [(p.heading, p.line) for p in found] == [
        ("", 1),
        ("Serving", 3),
        ("Serving > Batching", 7),
        ("Serving > Under lines", 21),
        ("Training", 28),
    ]
    assert "# not a heading" in found[2].text
    assert "# nor this" in found[2].text
    assert "a | table" in found[3].text


def test_front_matter_is_no_heading(tmp_path: Path) -> None:
    found = passages(tmp_path / "a.md", "---\ntitle: x\n---\n\n# One\ntext\n")
    assert [(p.heading, p.line) for p in found] == [("", 1), ("One", 5)]


def test_every_line_of_a_long_text_is_in_one_passage_that_names_its_line(tmp_path: Path) -> None:
    lines = [f"line {number} " + "word " * 20 if number % 7 else "" for number in range(1, 400)]
    found = passages(tmp_path / "a.txt", "\n".join(lines))
    assert len(found) > 10
    assert max(len(p.text) for p in found) < 2_500
    for number, line in enumerate(lines, 1):
        if line:
            (holder,) = [p for p in found if f"line {number} " in p.text]
            assert holder.line is not None
            assert holder.line + holder.text[: holder.text.index(f"line {number} ")].count("\n") == number


def test_a_line_without_end_is_cut_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(2_000)]
    found = passages(tmp_path / "a.txt", "first\n" + " ".join(words) + "\nlast")
    assert max(len(p.text) for p in found) <= 2_010
    assert " ".join(p.text for p in found).split() == ["first", *words, "last"]
    assert {p.line for p in found[1:-1]} == {2}
    passages(tmp_path / "b.txt", "x" * 5_000)


def test_text_that_is_not_utf_8_is_read_with_replacement(tmp_path: Path) -> None:
    (found,) = passages(tmp_path / "a.txt", "naïve café".encode("latin-1"))
    assert found.text == "na\ufffdve caf\ufffd"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_names_the_encoding(tmp_path: Path, encoding: str) -> None:
    (found,) = passages(tmp_path / "a.txt", "naïve".encode(encoding))
    assert found.text == "naïve"


def test_line_ends_of_windows_count_as_one(tmp_path: Path) -> None:
    found = passages(tmp_path / "a.md", "one\r\n\r\n# Two\r\nthree\r\n")
    assert [(p.heading, p.line, p.text) for p in found] == [("", 1, "one"), ("Two", 3, "# Two\nthree")]


def test_control_characters_do_not_reach_the_index(tmp_path: Path) -> None:
    (found,) = passages(tmp_path / "a.txt", "a \x02b\x1b[31m " + "text " * 100)
    assert not [c for c in found.text if c < " " and c not in "\n\t"]


@pytest.mark.parametrize(
    "content",
    [b"\x7fELF\0\0", b"text " * 1_000 + b"\0", random.Random(1).randbytes(4_000).replace(b"\0", b"")],
    ids=["program", "one nul", "random"],
)
def test_binary_data_is_refused_whatever_it_is_called(tmp_path: Path, content: bytes) -> None:
    assert "binary" in refusal(tmp_path / "a.md", content).reason


@pytest.mark.parametrize("content", [b"", b" \n\n\t\n"])
def test_a_file_without_text_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "no text" in refusal(tmp_path / "a.md", content).reason


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.md")
    with pytest.raises(Refusal, match="no regular file"):
        load(tmp_path / "a.md")


@pytest.mark.parametrize("place", ["/proc/kmsg", "/proc/self/status", "/sys/kernel/uevent_seqnum"])
def test_what_the_kernel_makes_up_is_refused_and_not_read(place: str) -> None:
    with pytest.raises(Refusal, match="in /proc or /sys, which the kernel makes up"):
        load(Path(place))


def test_a_folder_of_the_kernel_is_refused_and_passed_over_below_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((path, refused),) = find_documents(Path("/proc")).refused
    assert (path, "the kernel" in refused.reason) == (Path("/proc"), True)
    (tmp_path / "proc").mkdir()
    for name in ("a.md", "proc/b.md"):
        (tmp_path / name).write_text("x")
    monkeypatch.setattr("trackside.handbook.library._KERNEL_FOLDERS", (tmp_path / "proc",))
    assert [path.name for path in find_documents(tmp_path).files] == ["a.md"]


def test_a_file_of_size_0_is_refused_without_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.md").touch()
    monkeypatch.setattr(Path, "open", lambda *arguments: pytest.fail("opened"))
    with pytest.raises(Refusal, match="its size is 0"):
        load(tmp_path / "a.md")


def test_a_file_that_grows_while_it_is_read_is_read_to_the_limit_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.md").write_text("x" * 2_000)
    limits = {"markdown": 1_000, "text": 1_000, "pdf": 1_000}
    monkeypatch.setattr("trackside.handbook.library._MOST_BYTES", limits)
    small = os.stat_result((*(tmp_path / "a.md").stat()[:6], 10, 0, 0, 0), {"st_mtime_ns": 0})
    monkeypatch.setattr(Path, "stat", lambda path, **options: small)
    with pytest.raises(Refusal, match="needed: at most"):
        load(tmp_path / "a.md")


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate((64 << 20) + (1 << 20))
    with pytest.raises(Refusal, match="65 MiB; needed: at most 64 MiB"):
        load(tmp_path / "a.txt")


def test_a_pdf_is_read_page_by_page_and_pages_without_text_keep_their_number(tmp_path: Path) -> None:
    pages: list[tuple[int, int]] = []
    (tmp_path / "a.pdf").write_bytes(pdf(["tensor cores", "", "shared memory"]))
    found = split(load(tmp_path / "a.pdf"), lambda done, count: pages.append((done, count)))
    assert [(p.page, p.text, p.line) for p in found] == [
        (1, "tensor cores", None),
        (3, "shared memory", None),
    ]
    assert pages == [(1, 3), (2, 3), (3, 3)]


def test_a_word_broken_at_a_line_end_of_a_pdf_is_whole_again(tmp_path: Path) -> None:
    (found,) = passages(tmp_path / "a.pdf", pdf(["the synchro-\nnisation of GPU-\nA"]))
    assert "synchronisation" in found.text
    assert "GPU-\nA" in found.text


def test_letters_that_typesetting_joined_are_letters_again(tmp_path: Path) -> None:
    # 256 octal is fi in the encoding that a font without one has.
    (found,) = passages(tmp_path / "a.pdf", pdf(["dif\\256cult"]))
    assert found.text == "difficult"


def test_a_pdf_is_known_by_its_beginning_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "manual").write_bytes(pdf(["warp"]))
    assert load(tmp_path / "manual").kind == "pdf"


def test_a_pdf_that_an_empty_password_opens_is_read(tmp_path: Path) -> None:
    (found,) = passages(tmp_path / "a.pdf", encrypted(pdf(["occupancy"]), ""))
    assert found.text == "occupancy"


def test_a_pdf_behind_a_password_is_refused_with_the_command_that_opens_it(tmp_path: Path) -> None:
    told = refusal(tmp_path / "a.pdf", encrypted(pdf(["occupancy"]), "secret"))
    assert "encrypted" in told.reason
    assert "qpdf --decrypt" in told.remedy


@pytest.mark.parametrize("pages", [[""], ["", "", ""]])
def test_a_scanned_pdf_is_refused_with_the_way_to_its_text(tmp_path: Path, pages: list[str]) -> None:
    told = refusal(tmp_path / "a.pdf", pdf(pages))
    assert f"no text on any of its {len(pages)} pages" in told.reason
    assert "ocrmypdf" in told.remedy


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:9],
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"/Catalog", b"/Cattalg").replace(b"/Root 1", b"/Root 9"),
        lambda data: b"%PDF-1.7\n" + random.Random(3).randbytes(3_000),
        lambda data: b"<html>not found</html>",
    ],
    ids=["header only", "half", "no root", "noise", "a web page"],
)
def test_a_damaged_pdf_is_refused(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    told = refusal(tmp_path / "a.pdf", damage(pdf(["one", "two"])))
    assert told.reason.startswith("found ")
    assert told.remedy


def test_no_cut_of_a_pdf_ends_in_anything_but_text_or_a_refusal(tmp_path: Path) -> None:
    whole, refused = pdf(["one", "two"]), 0
    for end in range(0, len(whole), 37):
        (tmp_path / "a.pdf").write_bytes(whole[:end])
        try:
            passages = split(load(tmp_path / "a.pdf"))
        except Refusal:
            refused += 1
        else:
            assert any(word in passage.text for passage in passages for word in ("one", "two"))
    assert refused


def test_without_pypdf_a_pdf_is_refused_with_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pypdf", None)
    told = refusal(tmp_path / "a.pdf", pdf(["one"]))
    assert isinstance(told, PdfReaderMissing)
    assert told.remedy == "pip install 'trackside[pdf]'"


def test_a_folder_gives_its_documents_in_order_without_what_is_hidden(tmp_path: Path) -> None:
    for name in ("b.md", "a/z.txt", "a/y.PDF", ".git/c.md", "a/.d.md", "e.py", "f.rst", "g.markdown"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = find_documents(tmp_path)
    names = [str(path.relative_to(tmp_path.resolve())) for path in found.files]
    assert names == ["b.md", "f.rst", "g.markdown", "a/y.PDF", "a/z.txt"]
    assert (found.refused, found.ignored) == ((), 1)


def test_links_neither_loop_nor_count_twice(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.md").write_text("x")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "self.md").symlink_to("self.md")
    (tmp_path / "a" / "nowhere.md").symlink_to("nothing")
    (tmp_path / "two.md").symlink_to("a/one.md")
    found = find_documents(tmp_path)
    assert found.files == ((tmp_path / "a" / "one.md").resolve(),)
    assert found.ignored == 2


@pytest.mark.parametrize("name", ["nothing.md", "self.md"])
def test_a_place_that_does_not_exist_is_said_to_be_so(tmp_path: Path, name: str) -> None:
    (tmp_path / "self.md").symlink_to("self.md")
    with pytest.raises(OSError, match=r"self|No such file"):
        find_documents(tmp_path / name)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_folder_that_cannot_be_read_is_named_and_the_others_are_found(tmp_path: Path) -> None:
    for name in ("closed", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text("x")
    (tmp_path / "closed").chmod(0)
    found = find_documents(tmp_path)
    (tmp_path / "closed").chmod(0o700)
    assert [path.parent.name for path in found.files] == ["open"]
    assert [path.name for path, _ in found.refused] == ["closed"]
