"""What a traced window says of a step, on traces whose steps are known."""

from pathlib import Path

import numpy as np
import pytest
from tests.trace.kineto import Maker

from trackside.profiling.step_view import StepView, device_name
from trackside.trace.model import Trace
from trackside.trace.reader import read_trace
from trackside.trace.steps import Steps

STEPS = 4
LONG_US = 1000.0


def on_the_host(folder: Path) -> Trace:
    """Steps of 1000 µs: 600 of a product, 100 of a copy, 300 of neither."""
    made = Maker()
    for step in range(STEPS):
        at = step * LONG_US
        made.op("aten::mm", at + 50, 600)
        made.op("aten::copy_", at + 100, 50)
        made.op("aten::copy_", at + 700, 100)
    return read_trace(made.write(folder / "host.json"))


def on_a_device(folder: Path) -> Trace:
    """Steps of 1000 µs: 500 of a kernel, 100 of a copy, 200 of waiting for a batch."""
    made = Maker()
    for step in range(STEPS):
        at = step * LONG_US
        made.mark("enumerate(DataLoader)#_SingleProcess.__next__", at, 200)
        made.copy(at + 210, at + 220, 100, 1 << 20)
        made.kernel("gemm", at + 300, at + 340, 500)
    return read_trace(made.write(folder / "device.json"))


def viewed(trace: Trace, step_ms: float) -> StepView:
    begin = (np.arange(STEPS) * LONG_US * 1000).astype(np.int64) - trace_offset(trace)
    return StepView(trace, Steps(begin, begin + int(LONG_US * 1000), "marks"), step_ms)


def trace_offset(trace: Trace) -> int:
    return trace.base_ns


def test_on_the_host_the_parts_are_rescaled_to_the_true_step(tmp_path: Path) -> None:
    parts = viewed(on_the_host(tmp_path), 0.5).breakdown()
    assert parts.compute == pytest.approx(0.3)
    assert parts.copy_ == pytest.approx(0.05)
    assert parts.host == pytest.approx(0.15)


def test_on_a_device_tracing_makes_only_the_hosts_part_longer(tmp_path: Path) -> None:
    parts = viewed(on_a_device(tmp_path), 0.8).breakdown()
    assert parts.compute == pytest.approx(0.5)
    assert parts.copy_ == pytest.approx(0.1)
    # Of the 0.4 ms that the device had nothing to do, 0.2 were traced waiting; 0.2 ms are left in truth.
    assert parts.host == pytest.approx(0.1)
    assert parts.idle == pytest.approx(0.1)
    shorter = viewed(on_a_device(tmp_path), 0.3).breakdown()
    assert sum(shorter.model_dump().values()) == pytest.approx(0.3)


def test_what_ran_longest_comes_first_with_its_share_of_the_step(tmp_path: Path) -> None:
    kernels, left_out = viewed(on_the_host(tmp_path), 0.5).kernels(None, {})
    assert left_out == 0
    assert [(one.id, one.name, one.calls, one.bound) for one in kernels] == [
        ("k1", "aten::mm", 1.0, "unknown"),
        ("k2", "aten::copy_", 1.0, "copy"),
    ]
    assert kernels[0].total_ms == pytest.approx(0.3)
    assert kernels[0].share == pytest.approx(0.6)
    assert kernels[0].median_us == pytest.approx(300)
    device, _ = viewed(on_a_device(tmp_path), 0.8).kernels(None, {})
    assert (device[0].name, device[0].total_ms) == ("gemm", pytest.approx(0.5))
    assert device[0].share == pytest.approx(5 / 6)
    assert device[0].launch["grid"] == (8, 1, 1)


def test_one_step_is_laid_out_lane_by_lane_from_its_beginning(tmp_path: Path) -> None:
    (main,) = viewed(on_the_host(tmp_path), 0.5).timeline()
    assert (main.name, main.device, main.left_out) == ("main thread", False, 0)
    assert main.spans == [
        (50.0, 600.0, "compute", "aten::mm"),
        (100.0, 50.0, "compute", "aten::copy_"),
        (700.0, 100.0, "copy", "aten::copy_"),
    ]
    host, stream = viewed(on_a_device(tmp_path), 0.8).timeline()
    assert [span[2] for span in host.spans] == ["idle", "host", "host"]
    assert (stream.name, stream.device) == ("stream 7", True)
    assert [span[2] for span in stream.spans] == ["copy", "compute"]


def test_the_longest_chain_is_told_by_what_it_runs_on(tmp_path: Path) -> None:
    shares = viewed(on_the_host(tmp_path), 0.5).critical_path()
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["compute"] == pytest.approx(600 / 1000, rel=0.1)
    assert set(viewed(on_a_device(tmp_path), 0.8).critical_path()) >= {"device", "host"}


def test_a_device_is_called_as_the_profiler_does(tmp_path: Path) -> None:
    assert device_name(on_the_host(tmp_path)) == "cpu"
    assert device_name(on_a_device(tmp_path)) == "GPU 0"
