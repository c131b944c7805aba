"""The interpreter that runs the tests, and one that logs lines the other way, if there is one on the PATH."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

__all__ = ["INTERPRETERS", "environment", "interpreter"]

INTERPRETERS = ("here", "other")
ROOT = Path(__file__).parents[2]
_OTHERS = ("python3.11",) if sys.version_info >= (3, 12) else ("python3.12", "python3.13", "python3.14")


def environment() -> dict[str, str]:
    """In which the tests' and the project's modules are found."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


def interpreter(which: str) -> str:
    """Its path. Skips the test where there is none."""
    if which == "here":
        return sys.executable
    found = _other()
    if found is None:
        pytest.skip(f"none of {', '.join(_OTHERS)} on the PATH runs")
    return found


@cache
def _other() -> str | None:
    return next((path for name in _OTHERS for path in _candidates(name) if _runs(path)), None)


def _candidates(name: str) -> Iterator[str]:
    """On the PATH, and what a version manager whose stand-in is there has installed."""
    found = shutil.which(name)
    if found:
        yield found
        yield from map(str, sorted(Path(found).parents[1].glob(f"versions/*/bin/{name}")))


def _runs(path: str) -> bool:
    # A stand-in is there also where no version is chosen.
    return subprocess.run([path, "-c", ""], capture_output=True, timeout=20).returncode == 0
