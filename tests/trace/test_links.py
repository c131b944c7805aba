"""Kernels find their launch and operator, derivatives their operator: by hand, and in what torch writes."""

from pathlib import Path

import numpy as np
import torch
from tests.trace.kineto import Maker
from torch.profiler import ProfilerActivity, profile

from trackside.trace.links import forward_of, launch_of, lost_launches, parents
from trackside.trace.model import Kind, Trace
from trackside.trace.reader import read_trace


def read(made: Maker, folder: Path) -> Trace:
    return read_trace(made.write(folder / "a.json"))


def test_a_kernel_finds_its_launch_and_the_innermost_operator_around_that(tmp_path: Path) -> None:
    made = Maker()
    made.op("aten::linear", 0, 30)
    made.op("aten::addmm", 5, 20)
    made.kernel("gemm", 10, 50, 5)
    made.kernel("relu", 40, 60, 5)
    made.add("kernel", "orphan", 70, 1, pid=0, tid=7, device=0, correlation=99)
    trace = read(made, tmp_path)
    kernels = trace.of(Kind.KERNEL)
    calls = launch_of(trace, kernels)
    inside = parents(trace)
    assert [trace.name_of(kernel) for kernel in kernels] == ["gemm", "relu", "orphan"]
    assert calls[2] == -1
    assert trace.name_of(inside[calls[0]]) == "aten::addmm"
    assert inside[calls[1]] == -1
    assert trace.name_of(inside[np.flatnonzero(trace.named("aten::addmm"))[0]]) == "aten::linear"


def test_operators_on_other_threads_are_not_around(tmp_path: Path) -> None:
    made = Maker()
    made.op("aten::linear", 0, 30)
    made.op("aten::relu", 5, 3, tid=77)
    trace = read(made, tmp_path)
    assert parents(trace).tolist() == [-1, -1]


def test_one_after_the_other_is_not_inside(tmp_path: Path) -> None:
    made = Maker()
    made.op("aten::mul", 0, 10)
    made.op("aten::add", 10, 10)
    made.op("aten::sub", 20, 0)
    assert parents(read(made, tmp_path)).tolist() == [-1, -1, 1]


def test_a_trace_without_calls_has_no_launches(tmp_path: Path) -> None:
    made = Maker()
    made.add("kernel", "k", 0, 5, pid=0, tid=7, device=0, correlation=1)
    trace = read(made, tmp_path)
    assert launch_of(trace, trace.on_device).tolist() == [-1]


def test_launches_whose_work_is_missing_are_lost_unless_a_graph_is_being_captured(tmp_path: Path) -> None:
    made = Maker()
    for start, name in (
        (10, "cudaLaunchKernel"),
        (20, "cudaStreamBeginCapture_v10000"),
        (30, "cudaLaunchKernel"),
        (40, "cudaMemcpyAsync"),
        (50, "cudaStreamEndCapture"),
        (60, "cudaGraphLaunch"),
        (70, "cudaEventQuery"),
    ):
        made.add("cuda_runtime", name, start, 1, correlation=1000 + start)
    made.kernel("k", 80, 90, 5)
    trace = read(made, tmp_path)
    assert trace.start[lost_launches(trace)].tolist() == [10_000, 60_000]


def test_every_derivative_that_torch_runs_finds_the_operator_whose_it_is(tmp_path: Path) -> None:
    weight, other = (torch.randn(16, 16, requires_grad=True) for _ in range(2))
    x = torch.randn(16, 16)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            hidden = torch.sigmoid(x @ weight)
            with torch.no_grad():
                hidden.mean()
            loss = (
                torch.tanh(hidden.view(8, 32).t() * 2).sum()
                + torch.nn.functional.linear(x, other).exp().sum()
            )
            loss.backward()
    profiler.export_chrome_trace(str(tmp_path / "a.json"))
    trace = read_trace(tmp_path / "a.json")
    forward = forward_of(trace, parents(trace))
    expected = {
        "SigmoidBackward0": "aten::sigmoid",
        "MmBackward0": "aten::mm",
        "TanhBackward0": "aten::tanh",
        "MulBackward0": "aten::mul",
        "ExpBackward0": "aten::exp",
        "TBackward0": "aten::t",
        "SumBackward0": "aten::sum",
        "ViewBackward0": "aten::view",
    }
    seen = set()
    for row in trace.of(Kind.OP):
        name = trace.name_of(row)
        if name in expected:
            found = trace.name_of(forward[row])
            # Inside the operator that the program called stands one that does its work.
            assert expected[name] in (found, found.rstrip("_")), (name, found)
            assert trace.start[forward[row]] < trace.start[row]
            seen.add(name)
    assert seen == set(expected)
    # What a derivative runs inside is the derivative's too.
    products = [r for r in np.flatnonzero(trace.named("aten::mm")) if forward[r] >= 0]
    assert len(products) >= 3
