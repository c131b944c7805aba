"""Whole comparisons on a real GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trackside.comparison.trial import Options, run_trial
from trackside.machine.facts import facts
from trackside.records.errors import TracksideError
from trackside.store.lock import DeviceLock

pytestmark = pytest.mark.gpu
GPU = Path(__file__).resolve().parent.parent / "redteam" / "gpu"


def _compare(tmp_path: Path, baseline: str, candidate: str, budget: float = 40.0):  # type: ignore[no-untyped-def]
    return run_trial(Options(GPU / baseline, GPU / candidate, device="cuda", budget=budget, store=tmp_path))


@pytest.mark.timeout(120)
def test_a_gemm_against_itself_is_neither_faster_nor_slower(tmp_path: Path) -> None:
    record = _compare(tmp_path, "tasks/gemm_bf16.py", "tasks/gemm_bf16.py")
    assert record.verdict in ("equivalent", "inconclusive")
    assert record.speedup is not None
    assert record.speedup.low < 1.005
    assert record.seconds < 45


@pytest.mark.timeout(120)
def test_a_fused_layernorm_is_certified_faster_on_both_clocks(tmp_path: Path) -> None:
    record = _compare(tmp_path, "tasks/layernorm_affine.py", "honest/layernorm_triton.py")
    assert record.verdict in ("faster", "equivalent", "slower"), record.reasons
    if record.verdict == "faster":
        assert record.certified
        assert record.speedup is not None
        assert record.speedup.bounded_low is not None
        assert record.speedup.bounded_low > 1


@pytest.mark.timeout(120)
def test_work_that_follows_the_input_copy_is_not_certified_faster(tmp_path: Path) -> None:
    record = _compare(tmp_path, "tasks/softmax_fp32.py", "false/chase_input_copy.py")
    assert record.verdict != "faster", record.speedup


@pytest.mark.timeout(120)
def test_a_gpu_that_is_chosen_by_its_uuid_is_the_one_that_is_locked_and_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = facts().gpus
    uuid = gpus[-1].uuid
    assert uuid is not None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuid[:12])
    task = GPU / "tasks" / "softmax_fp32.py"
    with DeviceLock(f"gpu-{uuid}", wait=False), pytest.raises(TracksideError, match="in use"):
        run_trial(Options(task, task, device="cuda", checks_only=False, wait=False, store=tmp_path))
    record = run_trial(Options(task, task, device="cuda", checks_only=True, store=tmp_path))
    assert record.reasons == ["checks only: nothing was timed"]
    assert any(name.startswith("gpu.") for name in record.telemetry["series"])


@pytest.mark.timeout(120)
def test_a_host_that_is_only_slow_is_not_paced_and_its_launches_are_hidden(tmp_path: Path) -> None:
    record = _compare(tmp_path, "tasks/mlp_chain_reused.py", "honest/graph_until_next_call.py", 20)
    assert record.verdict in ("faster", "inconclusive")
    assert not record.statistics["paced"]
    assert not record.statistics["host_bound"]


@pytest.mark.timeout(120)
def test_calls_are_paced_where_one_arm_waits_for_the_device(tmp_path: Path) -> None:
    record = _compare(tmp_path, "tasks/softmax_fp32.py", "honest/softmax_waits_too.py", 20)
    assert record.verdict in ("faster", "inconclusive")
    assert record.statistics["paced"]


HOLDS_MOST = """
import torch
free, total = torch.cuda.mem_get_info()
held = torch.empty(free - (16 << 30), dtype=torch.uint8, device="cuda")
print("held", flush=True)
input()
"""
HUNGRY = """
import torch

def run(x):
    torch.empty(32 << 30, dtype=torch.uint8, device=x.device)
    return torch.relu(x)
"""
MODEST = """
import torch

def inputs(seed, device):
    return torch.randn(1 << 20, generator=torch.Generator(device).manual_seed(seed), device=device)

def run(x):
    return torch.relu(x)
"""


@pytest.mark.timeout(120)
def test_memory_that_another_process_holds_rejects_nobody(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text(MODEST)
    (tmp_path / "new.py").write_text(HUNGRY)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS_MOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        # A process of its own: to this one, the holder is a child.
        command = [
            sys.executable,
            "-m",
            "trackside",
            "compare",
            "base.py",
            "new.py",
            "--device",
            "cuda",
            "--json",
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    finally:
        holder.communicate("\n")
    record = json.loads(done.stdout)
    assert record["verdict"] == "inconclusive"
    assert "other processes use this GPU (1)" in record["reasons"][0]
