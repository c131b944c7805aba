"""Shared here: a copy of the sources with captures for tests, and running programs."""

import compileall
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.profiling.launching import Started, Starter

import trackside


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of ours with the captures of the tests among them, where a launcher looks for its own."""
    root = tmp_path_factory.mktemp("sources")
    ours = Path(trackside.__file__).parent
    for package in ("profiling", "records", "workload"):
        shutil.copytree(
            ours / package, root / "trackside" / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ours / "__init__.py", root / "trackside")
    for capture in (Path(__file__).parent / "captures").glob("*.py"):
        shutil.copy(capture, root / "trackside" / "profiling")
    # As an installation does: the programs run with PYTHONDONTWRITEBYTECODE.
    compileall.compile_dir(root, quiet=1)
    return root


@pytest.fixture
def started(sources: Path, tmp_path: Path) -> Iterator[Starter]:
    """Starts a program; what is told to the driver is `told`, all else is for Popen."""
    every: list[Started] = []

    def start(source: str, told: dict[str, Any] | None = None, **more: Any) -> Started:
        every.append(Started(sources, tmp_path, source, told or {}, more))
        return every[-1]

    yield start
    for one in every:
        one.kill()
