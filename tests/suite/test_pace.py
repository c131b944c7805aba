"""The time of one workload in units of another, measured in real processes."""

import math
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from tests.suite.projects import BASELINE, RIGHT

from trackside.machine.samplers import Column, ForeignProcess
from trackside.machine.telemetry import Telemetry
from trackside.records.errors import TracksideError
from trackside.suite.pace import _disturbed, measure_pace
from trackside.suite.suite_file import Entry

WORK = """\
import torch
shapes = [{shapes}]
def inputs(seed, device, shape):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(shape, 256, generator=g, device=device),)
def run(x):
    for _ in range({times}):
        y = torch.tanh(x)
    return y
"""


def accepted(file: Path, budget: float) -> Entry:
    return Entry("work", "accepted", file, file, file.with_name("base.py"), budget=budget)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_three_times_the_work_is_about_three_times_the_pace_at_each_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine makes the figures rough, and here they may be.
    monkeypatch.setattr("trackside.suite.pace._MOST_DISTURBED", 0.99)
    (tmp_path / "base.py").write_text(BASELINE)
    middles: dict[int, list[float]] = {}
    for times in (4, 12):
        path = tmp_path / f"work{times}.py"
        path.write_text(WORK.format(shapes="128, 256", times=times))
        pace = measure_pace(accepted(path, 14))
        assert [shape.shape for shape in pace.shapes] == [128, 256]
        assert all(len(shape.log_ratios) >= 6 and shape.quads >= 36 for shape in pace.shapes)
        middles[times] = [median(shape.log_ratios) for shape in pace.shapes]
    ratios = [math.exp(b - a) for a, b in zip(middles[4], middles[12], strict=True)]
    print(f"ratios at two shapes: {ratios}")
    assert all(1.8 < ratio < 5 for ratio in ratios)


@pytest.mark.parametrize(
    ("source", "word"),
    [(RIGHT, "inputs"), (BASELINE.replace("softmax", "softmox"), "softmox")],
)
@pytest.mark.slow
def test_a_file_that_is_no_workload_is_an_error_with_its_reason(
    tmp_path: Path, source: str, word: str
) -> None:
    (tmp_path / "base.py").write_text(BASELINE)
    (tmp_path / "work.py").write_text(source)
    with pytest.raises(TracksideError) as caught:
        measure_pace(accepted(tmp_path / "work.py", 5))
    assert caught.value.kind == "workload"
    assert word in caught.value.message


def test_another_process_on_the_gpu_meanwhile_makes_the_figures_unbelievable() -> None:
    times = np.arange(21, dtype=np.int64)
    counts = np.array([[1.0]] * 4 + [[0.0]] * 17)
    column = Column("gpu.foreign_processes", "processes", "gauge")
    found = Telemetry(times, counts, (column,), foreign=(ForeignProcess(77, "miner", 0, 3),))
    assert "77 (miner)" in (_disturbed(found, (0, 20), [0], "cuda", 0.0) or "")
    assert _disturbed(found, (10, 20), [0], "cuda", 0.0) is None
