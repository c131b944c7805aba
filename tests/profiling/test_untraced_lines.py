"""Lines have the shares of untraced steps, although tracing stretches some of them to twice their time."""

import json
import os
import statistics
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trackside.profiling.captured import _lines_alone
from trackside.profiling.line_events import CodePlace, Costs, LineEvents, ThreadStart
from trackside.profiling.line_stacks import Line
from trackside.profiling.line_times import self_times

# Lines that tracing stretches by half, to twice their time, and not at all. Timers of its own say what each
# takes, in every step; the steps that nothing traced are the ones to believe.
PROGRAM = """
import json, sys, torch
from time import perf_counter_ns as now

torch.set_num_threads(1)
torch.manual_seed(0)
weight = torch.nn.Parameter(torch.randn(64, 64) / 8)
wide = torch.nn.Parameter(torch.randn(300, 300) / 17)
optimizer = torch.optim.SGD([weight, wide], lr=1e-3)
numbers = [[float(n % 7) for n in range(64)] for _ in range(128)]
large = torch.randn(300, 300)
taken = []
for _ in range(80):
    t = [now()]
    x = torch.tensor(numbers)                              # list
    t.append(now())
    y = torch.stack([row @ weight for row in x])           # many
    t.append(now())
    z = large @ wide                                       # large
    t.append(now())
    n = sum(i * i for i in range(6000))                    # python
    t.append(now())
    loss = y.square().mean() + z.square().mean()
    optimizer.zero_grad()
    t.append(now())
    loss.backward()
    t.append(now())
    optimizer.step()
    t.append(now())
    taken.append(t)
json.dump(taken, open(sys.argv[1], "w"))
"""
WARMUP, TIMED = 5, 15


def line_of(mark: str) -> int:
    (found,) = [number for number, text in enumerate(PROGRAM.split("\n"), 1) if text.endswith(f"# {mark}")]
    return found


def shares(folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """By the profile, and by the program's own timers in the steps that were not traced."""
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "trackside", "profile", "--json"]
    command += ["--warmup", str(WARMUP), "--steps", str(TIMED), "program.py", "timers.json"]
    environment = os.environ | {"TRACKSIDE_HOME": str(folder / "home"), "TRACKSIDE_LOCKS": str(folder / "l")}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    record: dict[str, Any] = json.loads(ended.stdout)
    timers = np.array(json.loads((folder / "timers.json").read_text()))[WARMUP : WARMUP + TIMED]
    step = statistics.median(np.diff(timers[:, 0]))
    taken = dict(zip(("list", "many", "large", "python", "", "backward"), np.diff(timers).T, strict=False))
    lines = {row["line"]: row for row in record["lines"]}
    found = {name: lines[line_of(name)]["cpu_ms"] / record["step_ms"] for name in ("list", "many", "large")}
    found["python"] = lines[line_of("python")]["cpu_ms"] / record["step_ms"]
    derivatives = sum(row["backward_ms"] for row in record["lines"])
    asked = next(row["cpu_ms"] for row in record["lines"] if row["text"].strip() == "loss.backward()")
    found["backward"] = (derivatives + asked) / record["step_ms"]
    return found, {name: statistics.median(taken[name]) / step for name in found}


def test_the_first_step_with_lines_in_which_the_log_is_made_ready_is_no_lines_time() -> None:
    # Two lines of 100 ns each; in the first step Python makes the code ready, on the second of them.
    times = [0, 100, 5000, 5100, 5200, 5300]
    log = LineEvents(
        start_ns=0,
        stop_ns=5400,
        times=array("q", times),
        threads=array("q", [0] * 6),
        codes=array("q", [0] * 6),
        numbers=array("q", [2, 3] * 3),
        places=(CodePlace("train.py", "main", 1),),
        thread_starts=(ThreadStart(7, "main", ((0, 2),)),),
        costs=Costs(plain_line_ns=0.0),
    )
    steps = {"L": {"ends_ns": [5000, 5200, 5400]}, "B": {"ends_ns": [6000, 7000]}}
    spans, turns = _lines_alone(log.to_document(), steps)
    assert self_times(spans) == {Line("train.py", 2): 200, Line("train.py", 3): 200}
    assert turns == 1.0
    # Of two steps there is none to spare.
    fewer, turns = _lines_alone(log.to_document(), steps | {"L": {"ends_ns": [5000, 5400]}})
    assert self_times(fewer)[Line("train.py", 3)] == 4900 + 200
    assert turns == 1.0


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_lines_that_tracing_stretches_differently_have_their_untraced_shares(tmp_path: Path) -> None:
    """One factor for all lines would give the list half of its share."""
    seen = []
    # Others use the machine too, and a break in a traced step is some line's: one quiet run is enough.
    for attempt in range(4):
        found, expected = shares(tmp_path / str(attempt))
        apart = {name: found[name] - share for name, share in expected.items()}
        seen.append((apart, expected))
        if max(map(abs, apart.values())) < 0.03:
            return
    pytest.fail(f"no run within three points: {seen}")


# Each line depends on the one before alone: between the gradients of two of them lies the derivative of one.
TRAINING = """
import json, sys, torch
from time import perf_counter_ns as now
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(0)
rows, width = 1024, 256

def drawn(*shape):
    return torch.nn.Parameter(torch.randn(shape) / shape[0] ** 0.5)

first, wide = drawn(width, width), drawn(width, 3 * width)
back, last = drawn(3 * width, width), drawn(width, width)
scale, shift = drawn(width), drawn(width)
optimizer = torch.optim.SGD([first, wide, back, last, scale, shift], lr=1e-4)
given = torch.randn(rows, width)
taken, seen = [], []

def mark(x):
    x.register_hook(lambda gradient: seen.append(now()))

for _ in range(60):
    began, seen[:] = [now()], []
    a = given @ first                                                       # product
    began.append(now()); mark(a)
    b = F.gelu(a @ wide)                                                    # wide
    began.append(now()); mark(b)
    c = b @ back                                                            # back
    began.append(now()); mark(c)
    d = (c.tanh() * 0.5 + c.sigmoid() * c).square() + c                     # pointwise
    began.append(now()); mark(d)
    e = F.layer_norm(d, (width,), scale, shift)                             # norm
    began.append(now()); mark(e)
    f = torch.softmax(e @ last, dim=-1)                                     # softmax
    began.append(now()); mark(f)
    loss = f.square().mean()
    optimizer.zero_grad()
    loss.backward()
    ended = now()
    optimizer.step()
    taken.append([began, [*seen, ended]])
json.dump(taken, open(sys.argv[1], "w"))
"""
LINES = ("product", "wide", "back", "pointwise", "norm", "softmax")


def training_shares(folder: Path) -> dict[str, tuple[float, float, float, float]]:
    """Of each line forward and backward: by the profile, and by the program in the steps without tracing."""
    folder.mkdir()
    (folder / "program.py").write_text(TRAINING)
    command = [sys.executable, "-m", "trackside", "profile", "--json", "--warmup", "5", "--steps", "15"]
    environment = os.environ | {"TRACKSIDE_HOME": str(folder / "home"), "TRACKSIDE_LOCKS": str(folder / "l")}
    ended = subprocess.run(
        [*command, "program.py", "timers.json"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    record: dict[str, Any] = json.loads(ended.stdout)
    timers = json.loads((folder / "timers.json").read_text())[5:20]
    forward = np.median([np.diff(began) for began, _ in timers], axis=0)
    # The last line's gradient comes first.
    backward = np.median([np.diff(seen) for _, seen in timers], axis=0)[::-1]
    step = statistics.median(np.diff([began[0] for began, _ in timers]))
    source = TRAINING.split("\n")
    numbers = [next(n for n, text in enumerate(source, 1) if text.endswith(f"# {name}")) for name in LINES]
    rows = {row["line"]: row for row in record["lines"]}
    found = [(rows[n]["cpu_ms"], rows[n]["backward_ms"]) for n in numbers]
    return {
        name: (ahead / record["step_ms"], forward[n] / step, behind / record["step_ms"], backward[n] / step)
        for n, (name, (ahead, behind)) in enumerate(zip(LINES, found, strict=True))
    }


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_derivatives_stand_at_their_lines_with_their_untraced_shares(tmp_path: Path) -> None:
    """Tracing gives tensors fresh memory, and where they are filled is not where time goes untraced."""
    seen = []
    for attempt in range(4):
        shares = training_shares(tmp_path / str(attempt))
        seen.append(shares)
        apart = [max(abs(ahead - a), abs(behind - b)) for ahead, a, behind, b in shares.values()]
        if max(apart) < 0.03:
            return
    pytest.fail(f"no run within three points: {seen}")
