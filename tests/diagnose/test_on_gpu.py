"""On a real GPU: what a fix would take is timed there, and programs with nothing to find are not blamed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.diagnose.conftest import PROGRAMS

from trackside.diagnose.workbench import Workbench

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


@pytest.mark.parametrize("program", CLEAN, ids=lambda path: path.stem)
def test_clean_programs_are_not_blamed(program: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trackside", "profile", "--json", str(program)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRACKSIDE_HOME": str(tmp_path)},
        timeout=110,
    )
    record = json.loads(done.stdout)
    assert record["program"]["exit_code"] == 0, done.stderr[-800:]
    assert record["step_ms"] is not None
    blamed = [
        (one["id"], one["line"], one["gain"]) for one in record["findings"] if one["gain"]["low"] >= 0.02
    ]
    assert blamed == []
