"""`trackside handbook`, as the real program: checklist, search, and documents of the user's own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.handbook.pdfs import encrypted, pdf

from trackside.handbook.index import FILE_NAME, Index
from trackside.handbook.items import families, items

Trackside = Callable[..., subprocess.CompletedProcess[str]]


def document(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A folder with one document of each kind."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    (folder / "guide.md").write_text("# Serving\n\nSet the zephyr ratio.\n")
    (folder / "notes.txt").write_text("plain\nzephyr notes\n")
    (folder / "manual.pdf").write_bytes(pdf(["cover", "the zephyr unit"]))
    return folder


def test_the_list_shows_families_with_counts_and_the_next_command(trackside: Trackside) -> None:
    done = trackside("handbook", "list")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    for family in families():
        assert any(line.split()[:2] == [family.name, str(len(family.items))] for line in lines)
    assert f"{len(items())} items in {len(families())} families" in lines
    assert lines[-1] == f"next: trackside handbook list --family {families()[0].name}"


def test_the_json_list_has_the_full_counts(trackside: Trackside) -> None:
    found = document(trackside("handbook", "list", "--json"))
    assert (found["schema"], found["total"]) == ("trackside.handbook-families/1", len(families()))
    assert found["items"] == len(items()) == sum(family["items"] for family in found["families"])


def test_a_family_lists_its_items_heaviest_first(trackside: Trackside) -> None:
    found = document(trackside("handbook", "list", "--family", "kv-cache", "--json"))
    weights = [item["weight"] for item in found["items"]]
    assert weights == sorted(weights, reverse=True)
    assert {item["id"] for item in found["items"]} == {i for i in items() if i.startswith("kv-cache.")}
    shown = trackside("handbook", "list", "--family", "kv-cache").stdout
    assert all(f"{item['id']} " in shown and item["title"] in shown for item in found["items"])


def test_an_unknown_family_is_refused_with_the_nearest(trackside: Trackside) -> None:
    done = trackside("handbook", "list", "--family", "kvcache")
    assert (done.returncode, done.stdout) == (2, "")
    assert "needed: one of the" in done.stderr
    assert "remedy: trackside handbook list --family kv-cache\n" in done.stderr


def test_show_prints_everything_of_an_item_and_commands_unbroken(trackside: Trackside) -> None:
    done = trackside("handbook", "show", "kv-cache.fp8", COLUMNS="60")
    assert (done.returncode, done.stderr) == (0, "")
    item = items()["kv-cache.fp8"]
    flat = " ".join(done.stdout.split())
    for text in (item.title, item.id, item.why, item.when, item.check, item.fix, item.effect, *item.related):
        assert " ".join(text.split()) in flat
    lines = [line.strip() for line in done.stdout.splitlines()]
    for command in item.do:
        assert set(map(str.strip, command.splitlines())) <= set(lines)
    assert f"source    {item.source} (seen {item.seen})" in lines


def test_every_item_can_be_shown() -> None:
    from rich.console import Console

    from trackside.cli import handbook

    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handbook, "results", lambda: Console(file=shown, width=200))
        for id_ in items():
            handbook.show(id_)
            assert id_ in shown.getvalue()
            shown.truncate(shown.seek(0))


def test_show_takes_a_beginning_or_a_bare_name(trackside: Trackside) -> None:
    for reference in ("kv-cache.size-per", "size-per-token"):
        found = document(trackside("handbook", "show", reference, "--json"))
        assert (found["schema"], found["id"]) == ("trackside.handbook-item/1", "kv-cache.size-per-token")
    item = items()["kv-cache.size-per-token"]
    assert [other["id"] for other in found["related"]] == list(item.related)
    assert found["do"] == list(item.do)


def test_an_unknown_item_is_refused_with_the_nearest(trackside: Trackside) -> None:
    error = document(trackside("handbook", "show", "kv-cache.fp9", "--json"))["error"]
    assert error["kind"] == "not-found"
    assert "nearest: kv-cache.fp8" in error["message"]
    assert error["remedy"] == "trackside handbook show kv-cache.fp8"


def test_search_finds_checklist_items_and_leaves_no_store_behind(trackside: Trackside, home: Path) -> None:
    done = trackside("handbook", "search", "kv", "cache", "fp8")
    assert (done.returncode, done.stderr) == (0, "")
    assert "kv-cache.fp8  Store the cache in FP8" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("next: trackside handbook show kv-cache.")
    assert not home.exists()


def test_flags_of_other_programs_are_words(trackside: Trackside) -> None:
    found = document(trackside("handbook", "search", "--gpu-memory-utilization", "--json", "--limit", "1"))
    assert (found["words"], found["shown"]) == (["--gpu-memory-utilization"], 1)
    assert found["total"] > 1
    assert "gpu-memory-utilization" in found["hits"][0]["snippet"]


@pytest.mark.parametrize("words", [['"'], ["++", "'"]])
def test_words_without_a_letter_are_wrong_use(trackside: Trackside, words: list[str]) -> None:
    done = trackside("handbook", "search", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "needed: at least one word" in done.stderr


def test_a_limit_beyond_all_is_wrong_use(trackside: Trackside) -> None:
    done = trackside("handbook", "search", "--limit", 20 * "9", "memory")
    assert (done.returncode, done.stdout) == (2, "")
    assert "1000000" in done.stderr.splitlines()[0]
    assert trackside("handbook", "search", "--limit", "1000000", "memory").returncode == 0


def test_hits_show_sentences_and_not_the_tags_that_led_to_them(trackside: Trackside) -> None:
    found = document(trackside("handbook", "search", "first", "token", "slow", "--json"))
    assert found["shown"] >= 8
    assert not [hit["item"] for hit in found["hits"] if "first-token" in hit["snippet"]]


def test_nothing_found_says_what_was_searched(trackside: Trackside) -> None:
    done = trackside("handbook", "search", "xqzzyx")
    assert done.returncode == 0
    assert done.stdout == "nothing found for xqzzyx in the checklist\nnext: trackside handbook add FILE\n"


def test_added_documents_are_found_with_their_places(trackside: Trackside, shelf: Path, home: Path) -> None:
    done = trackside("handbook", "add", "shelf")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "reading 3 documents\n"
    assert "added     shelf/manual.pdf  2 pages\n" in done.stdout
    assert "3 added; index home/handbook.sqlite\n" in done.stdout
    shown = trackside("handbook", "search", "zephyr").stdout
    assert "shelf/guide.md:3  Serving\n    # Serving Set the zephyr ratio." in shown
    assert "shelf/notes.txt:2\n    plain zephyr notes" in shown
    assert "shelf/manual.pdf  page 2\n    the zephyr unit" in shown
    assert "3 passages in the checklist and 3 documents\n" in shown
    hits = document(trackside("handbook", "search", "zephyr", "--json"))["hits"]
    assert {(hit["kind"], hit["file"], hit["page"], hit["line"]) for hit in hits} == {
        ("markdown", str(shelf.resolve() / "guide.md"), None, 3),
        ("text", str(shelf.resolve() / "notes.txt"), None, 2),
        ("pdf", str(shelf.resolve() / "manual.pdf"), 2, None),
    }


def test_matches_are_bold_on_a_terminal(trackside: Trackside, shelf: Path) -> None:
    trackside("handbook", "add", "shelf/guide.md")
    shown = trackside("handbook", "search", "zephyr", FORCE_COLOR="1", TERM="xterm-256color").stdout
    assert "\x1b[1mzephyr\x1b[0m" in shown


def test_markup_in_a_document_is_shown_and_not_obeyed(trackside: Trackside, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# [red]zephyr[/red]\n\n[link=x]y[/link] \x1b[31m zephyr\n")
    trackside("handbook", "add", "a.md")
    shown = trackside("handbook", "search", "zephyr").stdout
    assert "[red]zephyr[/red]" in shown
    assert "\x1b" not in shown


def test_adding_again_skips_what_is_unchanged_and_replaces_what_is_not(
    trackside: Trackside, shelf: Path
) -> None:
    trackside("handbook", "add", "shelf")
    (shelf / "guide.md").write_text("# Serving\n\nnow qwindow\n")
    found = document(trackside("handbook", "add", "shelf", "shelf/guide.md", "--json"))
    counts = {name: found[name] for name in ("total", "added", "replaced", "unchanged", "refused")}
    assert counts == {"total": 3, "added": 0, "replaced": 1, "unchanged": 2, "refused": 0}
    assert "unchanged shelf/notes.txt" in trackside("handbook", "add", "shelf/notes.txt").stdout
    assert document(trackside("handbook", "search", "zephyr", "--json"))["total"] == 2
    assert document(trackside("handbook", "search", "qwindow", "--json"))["total"] == 1


def test_bad_files_in_a_folder_are_listed_with_1_and_the_others_are_added(
    trackside: Trackside, shelf: Path
) -> None:
    (shelf / "broken.pdf").write_bytes(pdf(["one"])[:60])
    (shelf / "locked.pdf").write_bytes(encrypted(pdf(["one"]), "secret"))
    (shelf / "scan.pdf").write_bytes(pdf(["", ""]))
    (shelf / "blob.txt").write_bytes(b"\0\1\2")
    (shelf / "loop").symlink_to(shelf)
    (shelf / ".hidden").mkdir()
    (shelf / ".hidden" / "x.md").write_text("zephyr")
    done = trackside("handbook", "add", "shelf")
    assert done.returncode == 1
    assert "3 added, 4 refused; index" in done.stdout
    for name, reason in (
        ("broken.pdf", "found a damaged PDF"),
        ("locked.pdf", "found an encrypted PDF"),
        ("scan.pdf", "found no text on any of its 2 pages"),
        ("blob.txt", "found binary data"),
    ):
        assert f"refused   shelf/{name}: {reason}" in done.stdout
    assert "Traceback" not in done.stderr
    assert document(trackside("handbook", "search", "zephyr", "--json"))["total"] == 3


def test_a_file_of_the_year_2400_does_not_keep_the_folder_out(trackside: Trackside, shelf: Path) -> None:
    os.utime(shelf / "guide.md", (13_569_465_600, 13_569_465_600))
    assert document(trackside("handbook", "add", "shelf", "--json"))["added"] == 3
    states = [entry["state"] for entry in document(trackside("handbook", "documents", "--json"))["documents"]]
    assert states == ["as added"] * 3


@pytest.mark.parametrize("place", ["/proc/kmsg", "/proc/version", "/proc", "/sys/kernel"])
def test_what_the_kernel_makes_up_is_refused_at_once(trackside: Trackside, place: str) -> None:
    done = trackside("handbook", "add", place)
    assert done.returncode == 1
    assert f"refused   {place}: found a place in /proc or /sys" in done.stdout


def test_a_refused_file_alone_is_named_with_the_way_out_and_the_old_version_stays(
    trackside: Trackside, shelf: Path
) -> None:
    trackside("handbook", "add", "shelf")
    (shelf / "manual.pdf").write_bytes(encrypted(pdf(["zephyr"]), "secret"))
    done = trackside("handbook", "add", "shelf/manual.pdf", "--json")
    (entry,) = document(done)["documents"]
    assert (done.returncode, entry["outcome"]) == (1, "refused")
    assert entry["path"] == str(shelf.resolve() / "manual.pdf")
    assert "qpdf" in entry["remedy"]
    assert document(trackside("handbook", "search", "zephyr", "unit", "--json"))["total"] == 1


def test_a_place_that_does_not_exist_ends_before_anything_is_added(
    trackside: Trackside, shelf: Path, home: Path
) -> None:
    done = trackside("handbook", "add", "shelf", "nowhere.md")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: found nothing to read at nowhere.md (No such file or directory)")
    assert not home.exists()


def test_a_folder_without_documents_is_refused(trackside: Trackside, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").touch()
    done = trackside("handbook", "add", "code")
    assert done.returncode == 1
    assert "refused   code: found no document in this folder; needed: files that end in .md," in done.stdout


def without(package: str, tmp_path: Path) -> str:
    """A PYTHONPATH with which importing a package fails as if it were not there."""
    blocked = tmp_path / "blocked"
    blocked.mkdir(exist_ok=True)
    (blocked / f"{package}.py").write_text(f"raise ModuleNotFoundError('no {package}', name='{package}')\n")
    return os.pathsep.join([str(blocked), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)


def test_without_pypdf_a_pdf_is_an_error_with_the_install_command(
    trackside: Trackside, shelf: Path, tmp_path: Path
) -> None:
    path = without("pypdf", tmp_path)
    done = trackside("handbook", "add", "shelf/manual.pdf", PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: found a PDF; needed: pypdf, which is not installed\nremedy: pip install 'trackside[pdf]'\n"
    )
    error = document(trackside("handbook", "add", "shelf/manual.pdf", "--json", PYTHONPATH=path))["error"]
    assert error["kind"] == "missing-dependency"


def test_without_pypdf_the_rest_of_a_folder_is_added(
    trackside: Trackside, shelf: Path, tmp_path: Path
) -> None:
    done = trackside("handbook", "add", "shelf", PYTHONPATH=without("pypdf", tmp_path))
    assert done.returncode == 1
    assert "2 added, 1 refused" in done.stdout
    assert "remedy: pip install 'trackside[pdf]'" in done.stdout


def test_a_pdf_with_aes_is_refused_with_the_package_that_could_open_it(
    trackside: Trackside, tmp_path: Path
) -> None:
    pytest.importorskip("cryptography", reason="needs cryptography to write a PDF with AES")
    (tmp_path / "a.pdf").write_bytes(encrypted(pdf(["zephyr"]), "", "AES-256"))
    path = without("cryptography", tmp_path)
    without("Crypto", tmp_path)
    done = trackside("handbook", "add", "a.pdf", PYTHONPATH=path)
    assert done.returncode == 1
    assert "found a PDF encrypted with AES" in done.stdout
    assert "remedy: pip install cryptography\n" in done.stdout
    assert trackside("handbook", "add", "a.pdf").returncode == 0


def test_a_terminal_sees_how_far_adding_is(home: Path, tmp_path: Path) -> None:
    (tmp_path / "long.pdf").write_bytes(pdf([f"page {number}" for number in range(200)]))
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "trackside", "handbook", "add", "long.pdf", "--json"],
        env=os.environ | {"TRACKSIDE_HOME": str(home), "TERM": "xterm", "COLUMNS": "80"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    ) as process:
        os.close(theirs)
        seen = b""
        # A terminal whose last writer has gone reads as an error.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65_536):
                seen += piece
        os.close(ours)
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["added"] == 1
    assert b"long.pdf" in seen
    assert b"0/1" in seen


def test_documents_lists_what_was_added_and_what_became_of_it(trackside: Trackside, shelf: Path) -> None:
    done = trackside("handbook", "documents")
    assert (
        done.stdout == "no documents in " + done.stdout.split()[3] + "\nnext: trackside handbook add FILE\n"
    )
    trackside("handbook", "add", "shelf")
    (shelf / "guide.md").unlink()
    (shelf / "notes.txt").write_text("zephyr, and much more than before\n")
    found = document(trackside("handbook", "documents", "--json"))
    assert (found["total"], found["passages"]) == (3, 4)
    states = {Path(entry["path"]).name: entry["state"] for entry in found["documents"]}
    assert states == {"guide.md": "gone", "manual.pdf": "as added", "notes.txt": "changed"}
    shown = trackside("handbook", "documents").stdout
    assert "3 documents, 4 passages\n" in shown
    assert shown.endswith("next: trackside handbook add shelf/notes.txt\n")


def test_remove_takes_one_document_out_even_when_its_file_is_gone(trackside: Trackside, shelf: Path) -> None:
    trackside("handbook", "add", "shelf")
    (shelf / "guide.md").unlink()
    done = trackside("handbook", "remove", "shelf/guide.md")
    assert (done.returncode, done.stderr) == (0, "")
    assert "removed shelf/guide.md from the search, not from the disk; 2 documents left" in done.stdout
    assert document(trackside("handbook", "search", "zephyr", "--json"))["total"] == 2
    again = trackside("handbook", "remove", "shelf/guide.md", "--json")
    assert (again.returncode, document(again)["error"]["kind"]) == (2, "not-found")


def test_a_file_whose_name_is_no_text_is_added_shown_and_removed(
    trackside: Trackside, tmp_path: Path
) -> None:
    name = os.fsdecode(b"\xff.md")
    (tmp_path / name).write_text("zephyr")
    added = document(trackside("handbook", "add", name, "--json"))
    assert added["documents"][0]["path"].endswith("/\\udcff.md")
    assert "\\udcff.md:1" in trackside("handbook", "search", "zephyr").stdout
    assert trackside("handbook", "remove", name, "--json").returncode == 0


def test_a_store_whose_name_is_no_text_is_used(trackside: Trackside, tmp_path: Path, shelf: Path) -> None:
    root = os.fsdecode(os.fsencode(tmp_path) + b"/\xfe")
    assert document(trackside("handbook", "add", "shelf", "--json", TRACKSIDE_HOME=root))["added"] == 3
    assert trackside("handbook", "documents", TRACKSIDE_HOME=root).returncode == 0


@pytest.mark.parametrize(
    "arguments", [["search", "memory"], ["add", "shelf"], ["documents"], ["remove", "a"]]
)
def test_a_damaged_index_is_an_error_that_says_what_to_delete(
    trackside: Trackside, home: Path, shelf: Path, arguments: list[str]
) -> None:
    home.mkdir()
    (home / FILE_NAME).write_bytes(b"damaged " * 1_000)
    done = trackside("handbook", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the file is damaged" in done.stderr
    assert f"remedy: delete {home / FILE_NAME}, then add the documents again" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_that_cannot_be_written_is_an_error_of_kind_store(trackside: Trackside, shelf: Path) -> None:
    # Where nobody may create a folder, not even root.
    done = trackside("handbook", "add", "shelf", "--json", TRACKSIDE_HOME="/proc/handbook")
    assert (done.returncode, document(done)["error"]["kind"]) == (2, "store")
    assert "Traceback" not in done.stderr


def test_a_disk_without_room_is_an_error_of_kind_store_and_loses_nothing(
    trackside: Trackside, home: Path, shelf: Path, tmp_path: Path
) -> None:
    trackside("handbook", "add", "shelf")
    trackside("handbook", "search", "memory")
    (tmp_path / "large.txt").write_text(" ".join(f"word{number}" for number in range(300_000)))
    most = (home / FILE_NAME).stat().st_size + 8_192
    done = subprocess.run(
        [sys.executable, "-m", "trackside", "handbook", "add", "large.txt", "--json"],
        env=os.environ | {"TRACKSIDE_HOME": str(home)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    error = document(done)["error"]
    assert (done.returncode, error["kind"]) == (2, "store")
    assert "free some space" in error["remedy"]
    assert "Traceback" not in done.stderr
    assert document(trackside("handbook", "search", "zephyr", "--json"))["total"] == 3


def test_two_programs_that_add_at_once_both_succeed(home: Path, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        for number in range(12):
            (tmp_path / name / f"{number}.md").write_text(f"zephyr {name} {number}")
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "trackside", "handbook", "add", name],
            env=os.environ | {"TRACKSIDE_HOME": str(home)},
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for name in "ab"
    ]
    errors = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], errors
    with Index(home) as index:
        assert index.search(["zephyr"]).total == 24


@pytest.mark.parametrize(
    "arguments", [["search", "memory"], ["documents"], ["list"], ["show", "kv-cache.fp8"]]
)
def test_reading_the_handbook_imports_nothing_that_is_slow_to_import(
    home: Path, arguments: list[str]
) -> None:
    program = (
        "import sys; from trackside.cli.main import main; main(sys.argv[1:])\n"
        "print('heavy:', [n for n in ('torch', 'numpy', 'psutil', 'pypdf') if n in sys.modules])\n"
    )
    command = [sys.executable, "-c", program, "handbook", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("heavy: []\n")
