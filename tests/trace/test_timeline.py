"""Every instant of a window counts once, and steps are found however they are marked."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.trace.kineto import Maker
from torch.profiler import ProfilerActivity, profile, record_function

from trackside.trace.intervals import Intervals, merged
from trackside.trace.reader import read_trace
from trackside.trace.steps import find_steps
from trackside.trace.timeline import breakdown, main_thread, ran_longest

LENGTH = 120


def instants(one: Intervals) -> set[int]:
    return {t for start, end in zip(one.start, one.end, strict=True) for t in range(start, end)}


@pytest.mark.parametrize("seed", range(40))
def test_sets_of_time_agree_with_sets_of_instants(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sets = []
    for count in rng.integers(0, 12, 2):
        start = rng.integers(0, LENGTH, count)
        sets.append(merged(start, start + rng.integers(0, 20, count)))
    one, other = sets
    a, b = instants(one), instants(other)
    assert one.total == len(a)
    assert instants(one.both(other)) == a & b
    assert instants(one.minus(other)) == a - b
    assert instants(one.within(30, 60)) == {t for t in a if 30 <= t < 60}
    assert instants(one.outside(0, LENGTH)) == set(range(LENGTH)) - a
    times = np.arange(-3, LENGTH + 30)
    assert one.holds(times).tolist() == [t in a for t in times]
    assert one.length_before(times).tolist() == [sum(at < t for at in a) for t in times]
    for found in (one, one.both(other), one.minus(other)):
        assert (found.end[:-1] < found.start[1:]).all(), "they touch"


def test_a_step_on_a_gpu_is_compute_exposed_communication_exposed_copies_host_and_idle(
    tmp_path: Path,
) -> None:
    made = Maker()
    made.op("aten::mm", 0, 5)
    made.kernel("gemm", 2, 10, 30)  # 10-40
    made.kernel("gemm", 4, 20, 30, stream=9)  # 20-50, beside it
    made.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 5, 45, 15, stream=11)  # 45-60, 10 of them alone
    made.copy(6, 55, 15, 1024, stream=13)  # 55-70, 10 of them alone
    made.mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 75, 15)
    trace = read_trace(made.write(tmp_path / "a.json"))
    found = breakdown(trace, 0, 100_000)
    assert (found.compute, found.communication, found.copy) == (40_000, 10_000, 10_000)
    assert (found.host, found.idle) == (25_000, 15_000)
    assert found.total == 100_000
    assert breakdown(trace, 15_000, 25_000).compute == 10_000


def test_a_device_that_waits_for_a_collective_of_the_host_communicates(tmp_path: Path) -> None:
    made = Maker()
    made.kernel("gemm", 2, 10, 30)  # 10-40
    made.mark("gloo:all_reduce", 30, 40, tid=77)  # 30-70
    found = breakdown(read_trace(made.write(tmp_path / "a.json")), 0, 100_000)
    assert (found.compute, found.communication, found.host) == (30_000, 30_000, 40_000)


def test_without_a_device_operators_compute(tmp_path: Path) -> None:
    made = Maker()
    made.op("aten::linear", 0, 30)
    made.op("aten::addmm", 5, 20)
    made.op("aten::relu", 20, 20, tid=77)
    made.op("c10d::allreduce_", 50, 10)
    made.op("aten::copy_", 65, 5)
    made.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 80, 10)
    made.op("aten::stack", 82, 3)
    found = breakdown(read_trace(made.write(tmp_path / "a.json")), 0, 100_000)
    assert (found.compute, found.communication, found.copy) == (43_000, 10_000, 5_000)
    assert (found.host, found.idle) == (35_000, 7_000)


def test_a_collective_of_gloo_lasts_as_long_as_its_range_and_computing_beside_it_hides_it(
    tmp_path: Path,
) -> None:
    made = Maker()
    made.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 0, 30)
    made.op("aten::mul", 2, 4)
    made.op("c10d::allreduce_", 10, 5)
    made.mark("gloo:all_reduce", 12, 58, tid=77)  # 12-70
    made.op("aten::mm", 40, 10)
    made.op("_c10d_functional::wait_tensor", 80, 10)
    trace = read_trace(made.write(tmp_path / "a.json"))
    found = breakdown(trace, 0, 100_000)
    # The operator around the call waits from 15 to 30 as far as can be told, and does not compute.
    assert (found.compute, found.communication) == (14_000, 60_000)
    assert found.host == 26_000


def test_what_ran_is_counted_on_the_device_and_without_one_by_outermost_operators(tmp_path: Path) -> None:
    made = Maker()
    made.op("aten::linear", 0, 30)
    made.op("aten::addmm", 5, 20)
    made.op("aten::linear", 40, 10)
    host = read_trace(made.write(tmp_path / "a.json"))
    assert [(ran.name, ran.calls, ran.total_ns) for ran in ran_longest(host, 0, 100_000)] == [
        ("aten::linear", 2, 40_000)
    ]
    made.kernel("small", 1, 10, 3)
    made.kernel("large", 2, 20, 9)
    made.kernel("small", 3, 30, 5)
    device = read_trace(made.write(tmp_path / "b.json"))
    assert [
        (ran.name, ran.calls, ran.total_ns, ran.median_ns) for ran in ran_longest(device, 0, 100_000)
    ] == [
        ("large", 1, 9_000, 9_000),
        ("small", 2, 8_000, 4_000),
    ]
    assert device.lanes[main_thread(device)].device == -1


def loop(steps: int, layers: int, marked: bool) -> list[float]:
    """Some steps of a network without an optimizer, as inference is; returns when each began."""
    width = 24
    weights = [torch.randn(width, width) for _ in range(layers)]
    began = []
    for step in range(steps):
        with record_function(f"ProfilerStep#{step}") if marked else record_function("other"):
            began.append(step)
            x = torch.randn(8, width)
            for weight in weights:
                x = torch.relu(x @ weight)
            x = torch.softmax(x, -1).cumsum(0)
    return began


@pytest.mark.parametrize("layers", [1, 2, 12])
def test_steps_without_any_mark_are_found_by_what_repeats(tmp_path: Path, layers: int) -> None:
    loop(2, layers, False)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        torch.ones(3).sum()  # Set-up that does not repeat.
        loop(9, layers, False)
    profiler.export_chrome_trace(str(tmp_path / "a.json"))
    trace = read_trace(tmp_path / "a.json")
    steps = find_steps(trace)
    assert steps.found_by == "repetition"
    assert len(steps) in (7, 8)
    softmax = np.flatnonzero(trace.named("aten::softmax"))
    for begin, end in zip(steps.begin, steps.end, strict=True):
        assert ((trace.start[softmax] >= begin) & (trace.start[softmax] < end)).sum() == 1


def test_a_step_that_is_nothing_but_a_loop_is_the_whole_loop_and_not_one_turn(tmp_path: Path) -> None:
    """As a history that grows by one state at a time: the loop's end meets its beginning once a step."""
    made, at = Maker(), 0.0
    for _ in range(6):
        for name in ("unsqueeze", *(["linear", "tanh", "unsqueeze", "cat"] * 40)):
            made.op(f"aten::{name}", at, 4)
            at += 5
    steps = find_steps(read_trace(made.write(tmp_path / "a.json")))
    assert steps.found_by == "repetition"
    assert set((steps.end - steps.begin).tolist()) == {161 * 5_000}


def test_a_break_now_and_then_does_not_make_a_longer_step(tmp_path: Path) -> None:
    made, at = Maker(), 0.0
    for turn in range(60):
        odd = turn in (7, 31, 50)
        for name in ("linear", "tanh", *(["item"] if odd else []), "mean"):
            made.op(f"aten::{name}", at, 4)
            at += 5
    steps = find_steps(read_trace(made.write(tmp_path / "a.json")))
    assert float(np.median(steps.end - steps.begin)) == 15_000


def test_marks_come_first_then_the_optimizer_and_else_the_window_is_one(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        loop(5, 2, True)
    profiler.export_chrome_trace(str(tmp_path / "a.json"))
    marked = find_steps(read_trace(tmp_path / "a.json"))
    assert (marked.found_by, len(marked)) == ("marks", 5)

    weight = torch.randn(8, 8, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(4):
            (torch.randn(3, 8) @ weight).sum().backward()
            optimizer.step()
    profiler.export_chrome_trace(str(tmp_path / "b.json"))
    stepped = find_steps(read_trace(tmp_path / "b.json"))
    assert (stepped.found_by, len(stepped)) == ("optimizer", 3)

    made = Maker()
    made.op("aten::mm", 10, 20)
    made.kernel("gemm", 12, 25, 40)
    single = find_steps(read_trace(made.write(tmp_path / "c.json")))
    assert (single.found_by, single.begin.tolist(), single.end.tolist()) == ("window", [10_000], [65_000])


def test_of_several_optimizers_the_one_that_steps_least_ends_a_step(tmp_path: Path) -> None:
    made = Maker()
    for i in range(12):
        made.mark("Optimizer.step#Adam.step", 10 * i, 4)
        if i % 4 == 3:
            made.mark("Optimizer.step#SGD.step", 10 * i + 5, 3)
    steps = find_steps(read_trace(made.write(tmp_path / "a.json")))
    assert steps.begin.tolist() == [38_000, 78_000]
    assert steps.end.tolist() == [78_000, 118_000]


def test_an_empty_trace_has_no_steps(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": []}))
    trace = read_trace(tmp_path / "a.json")
    assert len(find_steps(trace)) == 0
    assert breakdown(trace, 0, 10).host == 10
    assert ran_longest(trace, 0, 10) == []
    assert main_thread(trace) == -1
