"""A trace that would become too large ends early, wherever the program is, and the record says so."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(120)

# Four operators a turn, about 2 kB of trace.
STEPS = """
import torch
torch.set_num_threads(1)
a, w = torch.rand(8, 8), torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(w.parameters(), lr=0.01)
for step in range({steps}):
    for _ in range({turns}):
        ((a @ a) + a).relu_()
    w(a).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("done")
"""

BY_TIME = """
import time, torch
torch.set_num_threads(1)
a = torch.rand(8, 8)
end = time.monotonic() + 14
while time.monotonic() < end:
    ((a @ a) + a).relu_()
print("done")
"""


def profiled(folder: Path, program: str, *options: str) -> dict[str, Any]:
    script = folder / "program.py"
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "trackside", "profile", "--json", *options, str(script)],
        capture_output=True,
        text=True,
        env=os.environ
        | {"TRACKSIDE_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
        | {"TRACKSIDE_LOCKS": str(folder / "locks")},
    )
    assert done.returncode == 0, done.stderr
    # The program's own went on as ever.
    assert "done" in done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def windows(record: dict[str, Any]) -> dict[str, int]:
    return {one["window"]: one["steps"] for one in record["windows"]}


def cuts(record: dict[str, Any]) -> list[str]:
    return [one["effect"] for one in record["trust"] if "--max-trace" in (one["remedy"] or "")]


def test_windows_of_steps_end_early(tmp_path: Path) -> None:
    program = STEPS.format(steps=20, turns=400)
    asked = ("--warmup", "1", "--steps", "8")
    short = profiled(tmp_path, program, *asked, "--max-trace", "2")
    assert windows(short)["A"] == 8
    assert 1 <= windows(short)["T"] < 8
    assert 1 <= windows(short)["B"] < 8
    assert [text.partition(" was")[0] for text in cuts(short)] == ["window T", "window B"]
    assert short["lines"]


@pytest.mark.slow
def test_a_window_by_the_clock_ends_early(tmp_path: Path) -> None:
    record = profiled(tmp_path, BY_TIME, "--seconds", "4", "--max-trace", "20")
    assert any(text.startswith("window T was ended early") for text in cuts(record))
    assert record["kernels"]


@pytest.mark.slow
def test_a_step_that_never_ends_is_left_in_its_middle(tmp_path: Path) -> None:
    slow = STEPS.format(steps=5, turns="200 if step < 3 else 40_000")
    record = profiled(tmp_path, slow, "--warmup", "1", "--steps", "1", "--max-trace", "2")
    assert any("in the middle of a step" in text for text in cuts(record))


SIZES = """
import os, sys, torch
from trackside.profiling.trace_size import TraceSize
torch.set_num_threads(1)
a, w = torch.rand(8, 8), torch.nn.Linear(8, 8)
def work(turns):
    for _ in range(turns):
        ((a @ a) + a).relu_()
        w(a).sum().backward()
work(100)
size = TraceSize(10**9)
for turns in (1000, 3000):
    profiler = torch.autograd.profiler.profile(use_kineto=True, record_shapes=True)
    size.begin()
    profiler.__enter__()
    work(turns)
    told = size.now()
    profiler.__exit__(None, None, None)
    profiler.export_chrome_trace(sys.argv[1])
    print(told, os.path.getsize(sys.argv[1]))
"""


def test_the_size_of_a_trace_is_known_before_it_is_written(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIZES, str(tmp_path / "trace.json")],
        capture_output=True,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        told, written = map(int, line.split())
        assert told == pytest.approx(written, rel=0.3)
