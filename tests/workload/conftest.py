"""Fixtures for loading user files in the tests' own process."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def data() -> Path:
    """Workloads written in the published formats."""
    return Path(__file__).parent / "data"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of the given source below the test's own folder."""

    def write_file(source: str, name: str = "workload.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        return path

    return write_file


@pytest.fixture
def own_imports() -> Iterator[None]:
    """Puts back what loading leaves behind; a worker keeps it, since it loads one file and ends."""
    path, finders, modules = list(sys.path), list(sys.meta_path), set(sys.modules)
    no_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    yield
    sys.path[:], sys.meta_path[:] = path, finders
    sys.dont_write_bytecode = no_bytecode
    for name in set(sys.modules) - modules:
        if not name.startswith(("torch", "trackside", "numpy", "yaml")):
            del sys.modules[name]
