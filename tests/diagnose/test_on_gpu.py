"""On a real GPU: what a fix would take is timed there, and programs with nothing to find are not blamed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.diagnose.conftest import PROGRAMS

from trackside.diagnose.workbench import Workbench
from trackside.machine.surroundings import find_profiler

CLEAN = sorted((PROGRAMS / "cuda").glob("clean_*.py"))

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]


def test_there_are_ten_clean_programs() -> None:
    assert len(CLEAN) >= 10


def _device() -> str:
    import torch

    return str(torch.cuda.get_device_name())


def test_the_workbench_times_device_and_host_apart() -> None:
    setup = "torch.set_grad_enabled(False); a = torch.rand(4096, 4096)"
    with Workbench(device=_device()) as bench:
        ratio = bench.ratio(setup, "\n".join(["a @ a"] * 8), "a @ a")
        assert ratio is not None
        assert ratio.device == pytest.approx(1 / 8, rel=0.1)
        # Eight small kernels for one: both the host's time and the device's.
        small = "torch.set_grad_enabled(False); x = torch.rand(64)"
        ratio = bench.ratio(small, "\n".join(["x + 1"] * 8), "x + 1")
        assert ratio is not None
        assert ratio.host < 0.4
        assert ratio.device is not None
        assert ratio.device < 0.3


def test_ranges_of_an_optimizer_are_no_work_of_the_device() -> None:
    setup = (
        "ps = [torch.nn.Parameter(torch.rand(1024, 1024)) for _ in range(8)]\n"
        "for p in ps: p.grad = torch.rand_like(p)\n"
        "with_range = torch.optim.SGD(ps, lr=1e-6, fused=True)\n"
        "tensors = [p.detach() for p in ps]; grads = [p.grad for p in ps]\n"
    )
    with Workbench(device=_device()) as bench:
        found = bench.times(setup, "with_range.step()", "torch._foreach_add_(tensors, grads, alpha=-1e-6)")
        assert found is not None
        step, plain = found
        assert step.device is not None
        assert plain.device is not None
        assert step.device < 2.5 * plain.device


def test_another_device_than_the_one_here_is_not_timed() -> None:
    with Workbench(device="NVIDIA Nonesuch") as bench:
        assert bench.ratio("a = torch.rand(4)", "a + 1", "a + 1") is None
        assert bench.ratio("a = torch.rand(4)", "a + 1", "a + 1", on_host=True) is not None


def _profiled(program: Path, home: Path, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "trackside", "profile", "--json", *options, str(program)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRACKSIDE_HOME": str(home)},
        timeout=110,
    )
    record: dict[str, Any] = json.loads(done.stdout)
    assert record["program"]["exit_code"] == 0, done.stderr[-800:]
    assert record["step_ms"] is not None
    return record


def test_what_the_hardware_counts_in_kernels_of_one_s_own_is_told(tmp_path: Path) -> None:
    if find_profiler("ncu") is None:
        pytest.skip("needs ncu")
    rules = {
        "uncoalesced-access": "scale_columns",
        "doubles-in-kernel": "powers",
        "register-spills": "row_norm",
    }
    broken, repaired = (
        _profiled(PROGRAMS / "cuda" / f"counted_{which}.py", tmp_path, "--counters")
        for which in ("broken", "repaired")
    )
    found = {one["id"]: one for one in broken["findings"]}
    counted = {one["name"]: one["counters"] for one in broken["kernels"]}
    for rule, kernel in rules.items():
        assert rule in found, json.dumps(counted.get(kernel), indent=1)
        assert kernel in found[rule]["evidence"][0]
    assert not set(rules) & {one["id"] for one in repaired["findings"]}
    # Each is repaired alone in the other program: together they gain what is predicted for all.
    gained = 1 - repaired["step_ms"] / broken["step_ms"]
    assert broken["together"]["low"] < gained


@pytest.mark.parametrize("program", CLEAN, ids=lambda path: path.stem)
def test_clean_programs_are_not_blamed(program: Path, tmp_path: Path) -> None:
    record = _profiled(program, tmp_path)
    blamed = [
        (one["id"], one["line"], one["gain"]) for one in record["findings"] if one["gain"]["low"] >= 0.02
    ]
    assert blamed == []
