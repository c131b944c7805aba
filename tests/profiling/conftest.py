"""A copy of the sources with captures for tests in it: these are found as ours are, from wherever we run."""

import shutil
from pathlib import Path

import pytest

import trackside


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    ours = Path(trackside.__file__).parent
    for package in ("profiling", "records", "workload"):
        shutil.copytree(
            ours / package, root / "trackside" / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ours / "__init__.py", root / "trackside")
    for capture in (Path(__file__).parent / "captures").glob("*.py"):
        shutil.copy(capture, root / "trackside" / "profiling")
    return root
