"""On a real GPU: what each line is given, against events that the program itself records around it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]

# A label behind a line names what is timed there; `mark` ends the time of what came before it.
PROGRAM = """\
import atexit, json, statistics, sys
import torch

device, size = "cuda", 2048
torch.manual_seed(0)
weights = [torch.nn.Parameter(torch.randn(size, size, device=device) / size**0.5) for _ in range(4)]
optimizer = torch.optim.SGD(weights, lr=1e-6)
events = []


def mark(label):
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    events.append((label, event))


def helper(x):
    return torch.softmax(x @ weights[1], -1)  # helper


halve = lambda x: x @ weights[2] * 0.5  # lambda


def forward(x):
    y = x @ weights[0]  # operator
    mark("operator")
    y = helper(y)
    mark("helper")
    for _ in range(3):
        y = torch.tanh(y) * 0.5 + y  # loop
    mark("loop")
    y = halve(y)
    mark("lambda")
    z = y @ weights[3]; y = torch.exp(y - y.amax())  # two
    mark("two")
    return (z * y).square().mean()  # loss


def step(x):
    mark(None)
    loss = forward(x)
    mark("loss")
    loss.backward()
    mark("backward")
    optimizer.step()
    mark("optimizer")
    optimizer.zero_grad()


@atexit.register
def tell():
    torch.cuda.synchronize()
    times = {}
    for (_, before), (label, after) in zip(events, events[1:]):
        if label is not None:
            times.setdefault(label, []).append(before.elapsed_time(after))
    # Medians: in the first step libraries and kernels are loaded, which is no part of a steady one.
    with open(sys.argv[1], "w") as out:
        json.dump({label: statistics.median(of) for label, of in times.items()}, out)


batch = torch.randn(4 * size, size, device=device)
for _ in range(300):
    step(batch)
"""


def profiled(folder: Path, text: str, *arguments: str) -> dict[str, Any]:
    (folder / "program.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "trackside", "profile", "--json", "program.py", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "TRACKSIDE_HOME": str(folder / "home")},
        timeout=170,
    )
    record: dict[str, Any] = json.loads(done.stdout)
    assert record["program"]["exit_code"] == 0, done.stderr[-800:]
    return record


def shares_by_label(record: dict[str, Any]) -> dict[str, float]:
    """Forward time on the device of each labelled line, and all derivatives, as shares of the step."""
    lines = PROGRAM.splitlines()
    found: dict[str, float] = {"backward": 0.0}
    for one in record["lines"]:
        if one["line"] is None or not one["file"].endswith("program.py"):
            continue
        text = lines[one["line"] - 1]
        if "  # " in text:
            found[text.rsplit("  # ", 1)[1]] = one["device_ms"] / record["step_ms"]
        found["backward"] += one["backward_ms"] / record["step_ms"]
    return found


def test_shares_of_lines_lie_within_three_points_of_events_around_them(tmp_path: Path) -> None:
    record = profiled(tmp_path, PROGRAM, "timed.json")
    timed: dict[str, float] = json.loads((tmp_path / "timed.json").read_text())
    total = sum(timed.values())
    found = shares_by_label(record)
    apart = {
        label: (found.get(label, 0.0), ms / total)
        for label, ms in timed.items()
        if label not in ("optimizer", "backward")
    }
    # The first derivative is loss.backward()'s own.
    apart["backward"] = (found["backward"], timed["backward"] / total)
    assert {label: both for label, both in apart.items() if abs(both[0] - both[1]) > 0.03} == {}, (
        apart,
        timed,
        record["step_ms"],
    )
    assert record["attributed_share"] >= 0.95


INFERENCE = """\
import time
import torch

layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, device="cuda").eval()
model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
x = torch.randn(16, 256, 512, device="cuda")
end = time.monotonic() + 9
with torch.no_grad():
    while time.monotonic() < end:
        y = model(x)
        best = y.argmax(-1).cpu()
"""


def test_inference_without_steps_is_attributed(tmp_path: Path) -> None:
    record = profiled(tmp_path, INFERENCE)
    assert record["step_ms"] is not None
    assert record["attributed_share"] >= 0.95
    assert {one["line"] for one in record["lines"] if one["file"].endswith("program.py")} >= {10, 11}
