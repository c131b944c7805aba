"""A program with us inside behaves as without: each is run by `python` and by the launcher, and compared."""

import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.processes import until
from tests.profiling.launching import DRIVER, ENVIRONMENT
from tests.profiling.programs import STARTS_AND_ENDS, Case
from tests.profiling.programs_at_work import WORK


@dataclass
class Run:
    code: int
    stdout: bytes
    stderr: bytes
    files: dict[str, bytes]


def run(case: Case, folder: Path, words: Sequence[str], **more: Any) -> Run:
    """Lay the case's files out in the folder, which is made anew, and run a command line in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in case.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    for name, target in case.symlinks.items():
        (folder / name).symlink_to(target)
    standard = {"input": case.stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**ENVIRONMENT, **case.environment},
        timeout=60,
        check=False,
        **{**standard, **more},
    )
    if case.name == "fork that outlives it":
        until((folder / "orphan").exists, "the fork writes its file")
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return Run(done.returncode, done.stdout or b"", done.stderr, files)


def plainly(case: Case, tmp_path: Path, **more: Any) -> Run:
    return run(case, tmp_path / "work", [*case.options, *case.words], **more)


def through_us(
    case: Case, tmp_path: Path, sources: Path, capture: str = "greedy", **more: Any
) -> tuple[Run, dict[str, Any]]:
    report = tmp_path / "ours" / "report"
    report.parent.mkdir()
    module = case.words[0] == "-m"
    told = {
        "sources": str(sources),
        "report": str(report),
        "capture": capture,
        "module": module,
        "options": case.options,
        "configuration": {"steps": 3},
    }
    # -E: the environment is the program's, and what its start-up files say would be said twice.
    words = ["-E", str(DRIVER), json.dumps(told), *case.words[1 if module else 0 :]]
    return run(case, tmp_path / "work", words, **more), json.loads(report.read_text())


def comparable(output: bytes) -> bytes:
    """Without addresses, which no two runs share."""
    return re.sub(rb"0x[0-9a-f]{6,}", b"ADDRESS", output)


# These end without the moment at which a capture is closed, or closing it fails.
NEVER_CLOSED = {"_exit", "exec of another program", "functions replaced that we use"}


@pytest.mark.parametrize("case", [*STARTS_AND_ENDS, *WORK], ids=lambda case: case.name)
def test_a_program_with_us_inside_is_the_same_program(case: Case, tmp_path: Path, sources: Path) -> None:
    plain = plainly(case, tmp_path)
    ours, report = through_us(case, tmp_path, sources)
    assert comparable(ours.stderr).decode(errors="replace") == comparable(plain.stderr).decode(
        errors="replace"
    )
    assert comparable(ours.stdout) == comparable(plain.stdout)
    assert ours.code == plain.code
    assert ours.files == plain.files
    if case.code is not None:
        assert plain.code == case.code
    assert report["begun"]
    captured = list((tmp_path / "ours").glob("captured-*"))
    closed = (plain.code >= 0 or "interrupt" in case.name) and case.name not in NEVER_CLOSED
    assert (report["finished"], len(captured)) == (closed, int(closed)), report["trouble"]
    assert (report["lost"], report["garbled"]) == (0, 0)


# Python loads these before any file of their name, so a program cannot have its own.
BUILT_IN = {"_operator", "atexit"}


def modules_of_a_program(tmp_path: Path, sources: Path, capture: str) -> set[str]:
    """Those that a program finds at its start, and would not find without us."""
    case = Case("modules", {"prog.py": "import sys\nprint(*sys.modules)\n"})
    plain = set(plainly(case, tmp_path).stdout.decode().split())
    ours = set(through_us(case, tmp_path, sources, capture)[0].stdout.decode().split())
    assert plain <= ours
    return ours - plain


def test_a_program_finds_no_module_of_ours_at_its_start(tmp_path: Path, sources: Path) -> None:
    assert modules_of_a_program(tmp_path, sources, "nothing") == BUILT_IN


def test_of_what_a_capture_imports_the_program_finds_only_c_modules(tmp_path: Path, sources: Path) -> None:
    more = modules_of_a_program(tmp_path, sources, "greedy") - BUILT_IN
    assert {"_json", "_socket"} <= more
    for name in more:
        origin = importlib.import_module(name).__spec__.origin  # type: ignore[union-attr]
        assert name in sys.stdlib_module_names
        assert origin == "built-in" or str(origin).endswith(".so")


def test_an_installed_capture_leaves_bytecode_only_where_ours_is(tmp_path: Path, sources: Path) -> None:
    files = {"prog.py": "import near\n", "near.py": ""}
    case = Case("bytecode", files, environment={"PYTHONDONTWRITEBYTECODE": ""})
    plain = plainly(case, tmp_path)
    assert through_us(case, tmp_path, sources)[0].files.keys() == plain.files.keys()
    assert len(plain.files) == 3
