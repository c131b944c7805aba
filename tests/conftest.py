"""Fixtures that every test folder may use."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trackside.comparison.crew import Crew, default_threads

Trackside = Callable[..., subprocess.CompletedProcess[str]]

if "PYTEST_XDIST_WORKER" in os.environ:
    # Side by side, programs with a thread for each CPU would spin while they wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


# Who starts the tests in the background may have signals ignored, and what the tests start inherits that.
for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL)

GPU_HERE = any(Path("/dev").glob("nvidia[0-9]*"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a GPU, tests that need one say so."""
    for item in items:
        if not GPU_HERE and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU: found no /dev/nvidia0"))


@pytest.fixture(scope="session")
def crews(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Crew]]:
    """Gives a crew by its number of threads, each started once: its template imports torch."""
    private = tmp_path_factory.mktemp("private")
    made: dict[int, Crew] = {}

    def crew(threads: int) -> Crew:
        if threads not in made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(tempfile, "tempdir", str(private))
                made[threads] = Crew(threads)
            made[threads].start(1)
        return made[threads]

    yield crew
    for one in made.values():
        one.fleet.close()
    assert not os.listdir(private)


@pytest.fixture(scope="session")
def crew(crews: Callable[[int], Crew]) -> Crew:
    """With as many threads as a comparison has here."""
    return crews(default_threads("cpu"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the test's own, for this process and for the programs it starts."""
    root = tmp_path / "home"
    monkeypatch.setenv("TRACKSIDE_HOME", str(root))
    return root


@pytest.fixture
def trackside(home: Path, tmp_path: Path) -> Trackside:
    """Starts the real program with a store of the test's own; returns its output and exit code."""

    def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "NO_COLOR")}
        return subprocess.run(
            [sys.executable, "-m", "trackside", *arguments],
            env=plain | {"TRACKSIDE_HOME": str(home), "COLUMNS": "200"} | environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return start
