"""The bundle for GPU machines: replaced only by a whole one, and never in place of someone else's folder."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parent.parent.parent / "tools" / "bundle.py"
PACKAGE = {"tiny": "1.0"}


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tools_bundle", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bundle = load()


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one small wheel, the only place where pip may look."""
    folder = tmp_path / "index"
    folder.mkdir()
    about = "tiny-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "ANSWER = 42\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_bundle_is_replaced_by_the_next_and_says_what_it_holds(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "bundle"
    bundle.fill(folder, PACKAGE)
    (folder / "of_the_old_one.py").touch()
    bundle.fill(folder, PACKAGE)
    assert names(folder) == {"tiny.py", "tiny-1.0.dist-info", "trackside-bundle.txt"}
    assert (folder / "trackside-bundle.txt").read_text() == "tiny==1.0\n"
    assert names(folder.parent) == {"bundle"}


def test_a_bundle_stays_when_pip_fails(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    bundle.fill(folder, PACKAGE)
    with pytest.raises(SystemExit, match="pip could not install"):
        bundle.fill(folder, {"tiny": "2.0"})
    assert (folder / "tiny.py").read_text() == "ANSWER = 42\n"
    assert names(tmp_path) == {"bundle", "index"}


def test_a_bundle_that_is_too_large_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "LIMIT_MIB", 0)
    with pytest.raises(SystemExit, match="must stay under 0"):
        bundle.fill(tmp_path / "bundle", PACKAGE)
    assert names(tmp_path) == {"index"}


def test_a_folder_of_someone_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.tex").write_text("years of work")
    with pytest.raises(SystemExit, match=r"thesis is there and not a bundle"):
        bundle.fill(folder, PACKAGE)
    assert (folder / "chapter.tex").read_text() == "years of work"


def test_what_is_bundled_is_what_is_installed_here_less_what_the_machine_has() -> None:
    found = bundle.closure(("pytest",))
    assert found["pytest"] == pytest.__version__
    assert {"pluggy", "iniconfig"} <= set(found)
    assert not set(found) & bundle.PRESENT
