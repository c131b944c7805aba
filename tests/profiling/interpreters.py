"""The interpreter that runs the tests, and one that logs lines the other way, if there is one on the PATH."""

import os
import shutil
import subprocess
import sys
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
    for name in _OTHERS:
        path = shutil.which(name)
        # The name may be there and the interpreter not, as with version managers.
        if path and subprocess.run([path, "-c", ""], capture_output=True, timeout=20).returncode == 0:
            return path
    return None
