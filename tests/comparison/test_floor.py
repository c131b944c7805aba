"""The physical floor: what is impossible, and when the floor itself is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from trackside.comparison import floor
from trackside.comparison.arms import BASELINE, CANDIDATE
from trackside.comparison.checks import Ledger, Stop
from trackside.comparison.measure import Measurement, Plan
from trackside.comparison.trial import Crew, Options, run_trial
from trackside.records.errors import TracksideError

MICRO = 1e3
BYTES = {"seconds": 100e-6, "bound": "bytes", "bytes": 10_000_000, "bytes_per_s": 100e9}
FLOPS = {"seconds": 100e-6, "bound": "arithmetic", "flops": 1e9, "flops_per_s": 10e12}

WORKLOAD = """
import torch

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return tuple(torch.randn(128, 128, generator=g, device=device) for _ in range(2))

def run(a, b):
    return a @ b

def work(a, b):
    return {work}
"""


def measured(baseline_us: float, candidate_us: float) -> Measurement:
    plan = Plan("cpu", 6, 1, 0, 0.02, "device", 60.0, False)
    samples = {
        (BASELINE, "device"): [baseline_us * MICRO] * 9,
        (CANDIDATE, "device"): [candidate_us * MICRO] * 9,
    }
    return Measurement(plan, samples=samples)


@pytest.mark.parametrize(
    ("limit", "words"),
    [(BYTES, "10,000,000 bytes need at 100 GB/s"), (FLOPS, "1,000,000,000 FLOPs need at 10")],
)
def test_a_candidate_below_the_floor_is_rejected_with_the_arithmetic(
    limit: dict[str, object], words: str
) -> None:
    with pytest.raises(Stop, match=words) as caught:
        floor.judge(dict(limit), measured(200, 50), Ledger())
    assert caught.value.outcome == "rejected"


def test_a_candidate_above_the_floor_passes_and_the_distance_is_kept() -> None:
    ledger, limit = Ledger(), dict(BYTES)
    floor.judge(limit, measured(300, 150), ledger)
    assert ledger.results["above-floor"].status == "pass"
    assert limit["candidate_over_floor"] == pytest.approx(1.5)


def test_a_floor_that_the_baseline_itself_is_below_rejects_nobody() -> None:
    ledger = Ledger()
    floor.judge(dict(FLOPS), measured(50, 40), ledger)
    assert ledger.results["above-floor"].status == "warn"
    assert "declares too much" in ledger.results["above-floor"].detail


def compare(tmp_path: Path, work: str, crew: Crew) -> dict[str, object]:
    path = tmp_path / "workload.py"
    path.write_text(WORKLOAD.replace("{work}", work))
    options = Options(path, path, budget=8, pairs=2, store=tmp_path / "store")
    with pytest.MonkeyPatch.context() as patch:
        # Each template imports torch, which takes longer than what is looked at here.
        patch.setattr("trackside.comparison.trial._TEMPLATES", 1)
        return run_trial(options, crew=crew).to_dict()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_declared_flops_set_the_floor_where_they_take_longer_than_the_bytes(
    tmp_path: Path, crew: Crew
) -> None:
    record = compare(tmp_path, '{"flops": 1e12}', crew)
    found = record["floor"]
    assert isinstance(found, dict)
    assert found["flops"] == 1e12
    assert found["bound"] == "arithmetic"
    assert found["seconds"] == pytest.approx(found["flops"] / found["flops_per_s"])
    assert 1e8 < found["flops_per_s"] < 1e14


@pytest.mark.timeout(120)
@pytest.mark.parametrize("work", ["12", '{"bytes": float("nan")}', '{"flops": -1.0}'])
def test_work_that_is_no_dict_of_finite_amounts_is_an_error_that_says_what_is_needed(
    tmp_path: Path, work: str, crew: Crew
) -> None:
    with pytest.raises(TracksideError, match=r'needed: {"flops": number, "bytes": number}'):
        compare(tmp_path, work, crew)
