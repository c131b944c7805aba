"""Fixtures for loading user files in the tests' own process, and for real workers."""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from trackside.workload.fleet import Fleet, Process, Template


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


# A role beside `worker` and `reference`: it uses up CPU time and says what another process used meanwhile.
_SPINNER = """
import time


def serve(channel, request, isolation):
    channel.send({"ready": True})
    while True:
        asked = channel.receive(None)
        # The CPU clock of another process, as clock_getcpuclockid(3) makes it from a process id.
        other = (~asked["beside"] << 3) | 2
        before, began = time.clock_gettime(other), time.process_time()
        while time.process_time() < began + asked["seconds"]:
            pass
        channel.send({"mine": time.process_time() - began, "other": time.clock_gettime(other) - before})
"""


@dataclass
class Crewed:
    """A real fleet with one template, and workers that spin on request."""

    fleet: Fleet
    template: Template
    folder: Path

    def spawn(self, name: str, cpu: int) -> Process:
        return self.fleet.spawn(self.template, name, "spinner", "cpu", [cpu], name, self.folder, [], 60)


@pytest.fixture(scope="session")
def crewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crewed]:
    """Shared by all tests that need one: a template takes seconds to import torch."""
    roles = tmp_path_factory.mktemp("roles")
    (roles / "spinner.py").write_text(_SPINNER)
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), threads=1, memory_limit=8 << 30)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(roles), prepend=os.pathsep)
            template = fleet.start_template(0, ["spinner"])
        template.wait(100)
        yield Crewed(fleet, template, roles)
    finally:
        fleet.close()
