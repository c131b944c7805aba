"""Lines have the shares of untraced steps, although tracing stretches some of them to twice their time."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
