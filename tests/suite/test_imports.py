"""Which files an entry depends on."""

import os
from pathlib import Path

import pytest

from trackside.suite.imports import Reader


def write(root: Path, **sources: str) -> None:
    for name, source in sources.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)


def names(root: Path, *starts: str) -> set[str]:
    found = Reader(root).closure(tuple(root / name for name in starts))
    return {str(path.relative_to(root)) for path in found.files}


def test_imports_are_followed_through_modules_packages_and_dots(tmp_path: Path) -> None:
    write(
        tmp_path,
        work="import torch, helper\nfrom pack import inner\ndef run(x):\n    from pack.deep import far\n",
        helper="from second import thing",
        second="",
        unused="",
        pack__inner="from . import sibling\nfrom ..work import nothing",
        pack__sibling="",
        pack__deep__far="from ..aside import thing",
        pack__aside="",
        src__lib__core="",
    )
    (tmp_path / "pack" / "__init__.py").write_text("from lib import core")
    assert names(tmp_path, "work.py") == {
        *("work.py", "helper.py", "second.py", "pack/__init__.py", "pack/inner.py", "pack/sibling.py"),
        *("pack/deep/far.py", "pack/aside.py", "src/lib/core.py"),
    }


def test_a_file_that_is_opened_by_its_name_counts(tmp_path: Path) -> None:
    write(tmp_path, work="source = open('kernel.cu').read()\nother = 'missing.cu'")
    (tmp_path / "kernel.cu").write_text("// 1")
    assert names(tmp_path, "work.py") == {"work.py", "kernel.cu"}


def test_circles_end(tmp_path: Path) -> None:
    write(tmp_path, a="import b", b="import a")
    assert names(tmp_path, "a.py") == {"a.py", "b.py"}


def test_the_digest_changes_with_what_is_imported_and_with_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, work="import helper", helper="x = 1", unused="")
    reader, start = Reader(tmp_path), (tmp_path / "work.py",)
    before = reader.closure(start).digest
    write(tmp_path, unused="y = 1")
    assert reader.closure(start).digest == before
    write(tmp_path, helper="x = 2")
    changed = reader.closure(start).digest
    assert changed != before
    # Touched, but the same.
    (tmp_path / "helper.py").touch()
    assert reader.closure(start).digest == changed


def test_a_module_that_appears_later_is_seen(tmp_path: Path) -> None:
    write(tmp_path, work="import later")
    reader, start = Reader(tmp_path), (tmp_path / "work.py",)
    before = reader.closure(start)
    write(tmp_path, later="")
    after = reader.closure(start)
    assert tmp_path / "later.py" in after.files
    assert after.digest != before.digest


def test_a_half_written_file_is_broken_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, work="import helper", helper="x = 1\ndef f(:\n")
    reader, start = Reader(tmp_path), (tmp_path / "work.py",)
    broken = reader.closure(start).broken
    assert broken is not None
    assert broken.startswith("helper.py:2: a syntax error")
    write(tmp_path, helper="x = 1")
    assert reader.closure(start).broken is None
    (tmp_path / "work.py").unlink()
    assert reader.closure(start).broken == "work.py is missing"


@pytest.mark.timeout(20)
def test_a_pipe_is_broken_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fused.py")
    closure = Reader(tmp_path).closure((tmp_path / "fused.py",))
    assert closure.broken == "fused.py is no ordinary file"


def test_a_file_with_null_bytes_is_broken_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_bytes(b"x = 1\0\n")
    broken = Reader(tmp_path).closure((tmp_path / "work.py",)).broken
    assert broken is not None
    assert broken.startswith("work.py")


def test_what_lies_on_the_import_path_is_followed_and_what_is_installed_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, installed = tmp_path / "python", tmp_path / "user" / "site-packages"
    for folder, name in ((own, "ops"), (installed, "library")):
        folder.mkdir(parents=True)
        (folder / f"{name}.py").write_text("x = 1\n")
        monkeypatch.syspath_prepend(folder)
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "fused.py").write_text("import library\nimport ops\n")
    found = Reader(suite).closure((suite / "fused.py",)).files
    assert found == {suite / "fused.py", own / "ops.py"}
