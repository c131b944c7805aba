"""A trace becomes a graph that reproduces it, and that answers what would be faster."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.trace.kineto import Maker
from torch.profiler import ProfilerActivity, profile

from trackside.trace.dependencies import TracedGraph, task_graph
from trackside.trace.edits import Remove, Scale, ShrinkGaps
from trackside.trace.graph import EdgeKind
from trackside.trace.model import Kind, Trace
from trackside.trace.reader import read_trace
from trackside.trace.schedule import fidelity, schedule
from trackside.trace.steps import find_steps
from trackside.trace.what_if import predict


def built(made: Maker, folder: Path) -> tuple[Trace, TracedGraph]:
    trace = read_trace(made.write(folder / "a.json"))
    return trace, task_graph(trace, find_steps(trace))


def reproduces(traced: TracedGraph) -> None:
    found = fidelity(traced.graph, traced.start_ns, traced.end_ns)
    assert found.ratio == pytest.approx(1)
    assert found.worst_drift_ns <= 1, found


def kernels(trace: Trace, traced: TracedGraph) -> list[int]:
    return traced.tasks_of(trace.of(Kind.KERNEL)).tolist()


def device_bound(steps: int) -> Maker:
    """The host launches at once and waits at the end of each step; kernels follow one another."""
    made, at = Maker(), 0.0
    for step in range(steps):
        made.mark(f"ProfilerStep#{step}", at, 500)
        made.op("aten::mm", at + 5, 15)
        made.kernel("gemm", at + 10, at + 20, 200)
        made.op("aten::relu", at + 25, 15)
        made.kernel("relu", at + 30, at + 220, 200)
        made.add("cuda_runtime", "cudaStreamSynchronize", at + 50, 385)
        at += 500
    return made


def test_a_device_bound_step_shrinks_with_its_kernels_and_not_with_python(tmp_path: Path) -> None:
    trace, traced = built(device_bound(3), tmp_path)
    reproduces(traced)
    half = predict(traced.graph, [Scale(kernels(trace, traced), 0.5)])
    assert half.before_ns == pytest.approx(500_000, rel=0.01)
    assert half.after_ns == pytest.approx(300_000, rel=0.02)
    hosts = traced.tasks_of(trace.of(Kind.OP))
    assert predict(traced.graph, [Scale(hosts, 0.0)]).gain < 0.05


def host_bound(steps: int) -> Maker:
    """Kernels of 5 µs, launched every 50 µs, and nobody waits."""
    made, at = Maker(), 0.0
    for step in range(steps):
        made.mark(f"ProfilerStep#{step}", at, 500)
        for i in range(10):
            made.op("aten::add", at + 50 * i + 10, 20)
            made.kernel("add", at + 50 * i + 15, at + 50 * i + 22, 5)
        at += 500
    return made


def test_a_host_bound_step_shrinks_with_launches_and_python_and_not_with_kernels(tmp_path: Path) -> None:
    trace, traced = built(host_bound(4), tmp_path)
    reproduces(traced)
    assert predict(traced.graph, [Scale(kernels(trace, traced), 0.1)]).gain == pytest.approx(0, abs=0.01)
    hosts = traced.tasks_of(trace.of(Kind.OP, Kind.RUNTIME))
    faster = predict(traced.graph, [Scale(hosts, 0.5), ShrinkGaps(hosts, 0.5)])
    assert faster.gain == pytest.approx(0.5, abs=0.02)


def test_without_a_synchronisation_the_host_runs_ahead_and_the_device_sets_the_pace(tmp_path: Path) -> None:
    trace, traced = built(device_bound(4), tmp_path)
    waits = traced.tasks_of(np.flatnonzero(trace.named("cudaStreamSynchronize")))
    freed = predict(traced.graph, [Remove(waits), ShrinkGaps(range(traced.graph.task_count), 0.0)])
    assert freed.after_ns == pytest.approx(400_000, rel=0.01)


def test_a_copy_that_the_host_waits_for_holds_up_what_follows(tmp_path: Path) -> None:
    made = Maker()
    made.op("aten::copy_", 0, 100)
    made.add("cuda_runtime", "cudaMemcpyAsync", 5, 90, correlation=900)
    place = {"pid": 0, "tid": 7, "device": 0, "stream": 7}
    made.add(
        "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 20, 70, correlation=900, bytes=1 << 20, **place
    )
    made.op("aten::mm", 110, 20)
    made.kernel("gemm", 115, 125, 50)
    trace, traced = built(made, tmp_path)
    reproduces(traced)
    copies = traced.tasks_of(trace.of(Kind.COPY))
    assert predict(traced.graph, [Scale(copies, 0.0)]).before_ns == 175_000
    assert predict(traced.graph, [Scale(copies, 0.0)]).after_ns == pytest.approx(105_000, abs=1_000)


@pytest.mark.parametrize("returns", [440, 495, 600, 900])
def test_the_host_waits_for_kernels_where_it_copies_from_memory_that_may_be_paged_out(
    tmp_path: Path, returns: int
) -> None:
    """As on an H200: the copy begins behind what was launched before, and ends at 500 µs of each step."""
    made, place = Maker(), {"pid": 0, "tid": 7, "device": 0, "stream": 7}
    for step in range(3):
        at = 1000.0 * step
        made.mark(f"ProfilerStep#{step}", at, 1000)
        made.op("aten::mm", at + 1, 8)
        made.kernel("gemm", at + 3, at + 10, 390)
        made.op("aten::copy_", at + 12, returns - 10)
        made.add("cuda_runtime", "cudaMemcpyAsync", at + 15, returns - 15, correlation=900 + step)
        made.add(
            "gpu_memcpy",
            "Memcpy HtoD (Pageable -> Device)",
            at + 401,
            99,
            correlation=900 + step,
            bytes=1 << 20,
            **place,
        )
    trace, traced = built(made, tmp_path)
    assert fidelity(traced.graph, traced.start_ns, traced.end_ns).worst_drift_ns <= 3 * 5_000
    faster = predict(traced.graph, [Scale(kernels(trace, traced), 0.5)])
    assert faster.before_ns - faster.after_ns == pytest.approx(195_000, rel=0.03)
    if returns > 440:
        pinned = predict(traced.graph, [Scale(traced.tasks_of(trace.of(Kind.COPY)), 0.2)])
        assert pinned.before_ns - pinned.after_ns == pytest.approx(79_000, rel=0.03)


@pytest.mark.parametrize(("ahead", "waits"), [(1100, True), (20, False)])
def test_a_launch_waits_for_the_device_only_where_its_queue_is_full(
    tmp_path: Path, ahead: int, waits: bool
) -> None:
    made = Maker()
    made.mark("ProfilerStep#1", 0, 100 * (ahead + 2))
    for i in range(ahead):
        made.kernel("k", 3 * i, 10 + 100 * i, 100)
    # It comes back right after a kernel has ended, some time after it was called.
    called, freed = 3 * ahead + 1, 10 + 100 * (3 * ahead // 100 + 3)
    made.add("cuda_runtime", "cudaLaunchKernel", called, freed + 5 - called, correlation=90_000)
    place = {"pid": 0, "tid": 7, "device": 0, "stream": 7}
    made.add("kernel", "last", 10 + 100 * ahead, 100, correlation=90_000, **place)
    trace, traced = built(made, tmp_path)
    reproduces(traced)
    held = traced.graph.target[traced.graph.kind == EdgeKind.END_AFTER]
    rows = traced.row[held]
    assert (trace.correlation[rows].tolist() == [90_000]) is waits


def far_ahead(steps: int, unseen: int, room: int = 1024) -> Maker:
    """A loop that never waits: ten launches of 8 µs a step, kernels of 250 µs, and a queue with `room`.

    Of the first steps nothing was recorded: when the trace begins the queue is full of their kernels.
    """
    made, kernels, host, device = Maker(), 10, 0.0, 0.0
    began: list[float] = []
    for number in range((unseen + steps) * kernels):
        step, place = divmod(number, kernels)
        recorded = step >= unseen
        called = host + 4
        # A launch into a full queue comes back when the oldest has begun.
        returned = max(called + 2, began[number - room] + 5 if number >= room else 0)
        start, took = max(returned + 4, device), 700.0 if place == 0 else 200.0
        if recorded and place == 0:
            made.mark(f"ProfilerStep#{step}", host, 1)
        if recorded:
            made.op("aten::mm", host + 2, returned + 1 - host - 2)
            made.add("cuda_runtime", "cudaLaunchKernel", called, returned - called, correlation=number + 1)
            lane = {"pid": 0, "tid": 7, "device": 0, "stream": 7}
            made.add("kernel", f"k{place}", start, took, correlation=number + 1, **lane)
        began.append(start)
        host, device = returned + 2, start + took
    marks = [event for event in made.events if event["cat"] == "user_annotation"]
    for mark, after in pairwise(marks):
        mark["dur"] = after["ts"] - mark["ts"]
    made.events.remove(marks[-1])
    return made


@pytest.mark.parametrize(("steps", "unseen"), [(30, 200), (200, 200), (200, 0)])
def test_a_host_that_waits_for_room_in_the_queue_is_not_what_a_step_takes(
    tmp_path: Path, steps: int, unseen: int
) -> None:
    trace, traced = built(far_ahead(steps, unseen), tmp_path)
    first = traced.tasks_of(np.flatnonzero(trace.named("k0")))
    # 700 of 2,500 µs; ten launches take 80 µs.
    gone = predict(traced.graph, [Remove(first)])
    assert gone.before_ns == pytest.approx(2_500_000, rel=0.01)
    assert gone.gain == pytest.approx(0.28, abs=0.01)
    assert predict(traced.graph, [Remove(kernels(trace, traced))]).gain > 0.9
    hosts = traced.tasks_of(trace.of(Kind.OP, Kind.RUNTIME))
    assert predict(traced.graph, [Scale(hosts, 0.0)]).gain == pytest.approx(0, abs=0.01)


def test_a_stream_that_waits_for_another_follows_it(tmp_path: Path) -> None:
    made = Maker()
    made.op("aten::mm", 0, 60)
    made.kernel("gemm", 5, 20, 100)
    made.add("cuda_runtime", "cudaEventRecord", 10, 1, correlation=801)
    made.add("cuda_runtime", "cudaStreamWaitEvent", 12, 1, correlation=802)
    wait = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 801, "correlation": 802}
    made.add("cuda_sync", "Stream Wait Event", 13, 0, pid=0, tid=20, device=0, stream=20, **wait)
    made.kernel("other", 15, 120, 30, stream=20)
    trace, traced = built(made, tmp_path)
    reproduces(traced)
    first = traced.tasks_of(np.flatnonzero(trace.named("gemm")))
    assert predict(traced.graph, [Scale(first, 0.5)]).after_ns == 100_000


def test_the_thread_of_autograd_and_the_main_one_wait_for_each_other(tmp_path: Path) -> None:
    made = Maker()
    made.op("aten::mm", 0, 50)
    made.op("MmBackward0", 60, 100, tid=77)
    made.op("MulBackward0", 165, 100, tid=77)
    made.op("aten::add_", 270, 30)
    trace, traced = built(made, tmp_path)
    reproduces(traced)
    backward = traced.tasks_of(np.flatnonzero(trace.named("MmBackward0", "MulBackward0")))
    assert predict(traced.graph, [Scale(backward, 0.5)]).after_ns == 200_000
    forward = traced.tasks_of(np.flatnonzero(trace.named("aten::mm")))
    assert predict(traced.graph, [Scale(forward, 0.0)]).after_ns == 250_000


def test_pieces_of_an_operator_lie_around_those_inside_it(tmp_path: Path) -> None:
    made = Maker()
    made.op("aten::linear", 0, 30)
    made.op("aten::t", 5, 5)
    made.op("aten::addmm", 12, 10)
    trace, traced = built(made, tmp_path)
    reproduces(traced)
    outer = traced.tasks_of(np.flatnonzero(trace.named("aten::linear")))
    assert traced.graph.duration_ns[outer].tolist() == [5_000, 2_000, 8_000]
    assert traced.graph.gap_ns.sum() == 0


def test_a_step_that_torch_traces_on_a_cpu_is_reproduced(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters())
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(32, 64)).square().mean().backward()
            optimizer.step()
    profiler.export_chrome_trace(str(tmp_path / "a.json"))
    trace = read_trace(tmp_path / "a.json")
    traced = task_graph(trace, find_steps(trace))
    reproduces(traced)
    assert len(traced.graph.step_ends) == 4
    assert schedule(traced.graph).makespan_ns > 0


def test_no_steps_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"traceEvents": []}')
    trace = read_trace(tmp_path / "a.json")
    with pytest.raises(ValueError, match="at least one step"):
        task_graph(trace, find_steps(trace))
