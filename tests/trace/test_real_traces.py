"""What a GPU really writes: every claim of the trace package against the JSON itself."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.trace.real import DEVICE, NAMES, changed, document, events, path_of, text_of

from trackside.trace.critical_path import critical_path
from trackside.trace.dependencies import TracedGraph, task_graph
from trackside.trace.edits import Scale, SetDuration, ShrinkGaps
from trackside.trace.file import TraceFile
from trackside.trace.graph import EdgeKind
from trackside.trace.layout import scan
from trackside.trace.links import forward_of, launch_of, lost_launches, parents
from trackside.trace.model import Kind, Trace
from trackside.trace.reader import read_trace
from trackside.trace.schedule import fidelity, schedule
from trackside.trace.steps import as_run, find_steps, like_steps
from trackside.trace.timeline import breakdown, main_thread, ran_longest
from trackside.trace.what_if import predict


def built(trace: Trace) -> TracedGraph:
    return task_graph(trace, find_steps(trace))


@pytest.mark.parametrize(
    ("name", "found_by", "count"),
    [
        ("train", "optimizer", 2),
        ("infer", "repetition", 3),
        ("graph", "repetition", 6),
        ("compiled", "optimizer", 2),
    ],
)
def test_steps_are_found_as_the_program_took_them(name: str, found_by: str, count: int) -> None:
    trace = read_trace(path_of(name))
    steps = find_steps(trace)
    assert (steps.found_by, len(steps)) == (found_by, count)
    # Each step computes the same: one replay or call, one forward and backward pass.
    kernels = trace.of(Kind.KERNEL)
    launched = trace.start[launch_of(trace, kernels)]
    each = [
        Counter(trace.name[kernels[(launched >= begin) & (launched < end)]].tolist())
        for begin, end in zip(steps.begin, steps.end, strict=True)
    ]
    assert all(one == each[0] for one in each)


def swept(name: str, begin: int, end: int) -> dict[str, int]:
    """Every stretch between two changes on the device once, for the first of what runs in it."""
    running = [
        (event["begin"], event["end"], "compute" if event["cat"] == "kernel" else "copy")
        for event in events(name, *DEVICE)
    ]
    times = sorted({begin, end, *(t for one in running for t in one[:2] if begin < t < end)})
    found = dict.fromkeys(("compute", "copy", "host"), 0)
    for left, right in pairwise(times):
        here = {what for start, stop, what in running if start <= left and stop >= right}
        found["compute" if "compute" in here else "copy" if here else "host"] += right - left
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_breakdown_is_what_a_sweep_over_the_raw_events_finds(name: str) -> None:
    trace = read_trace(path_of(name))
    steps = find_steps(trace)
    begin, end = int(steps.begin[1]), int(steps.end[1])
    found, expected = breakdown(trace, begin, end), swept(name, begin, end)
    assert (found.compute, found.copy, found.host) == tuple(expected.values())
    assert (found.communication, found.idle) == (0, 0)
    assert found.total == end - begin


@pytest.mark.parametrize("name", NAMES)
def test_what_ran_longest_adds_up_to_the_raw_events(name: str) -> None:
    trace = read_trace(path_of(name))
    expected: Counter[str] = Counter()
    for event in events(name, *DEVICE):
        expected[event["name"]] += event["end"] - event["begin"]
    found = ran_longest(trace, int(trace.start.min()), int(trace.end.max()))
    assert {ran.name: ran.total_ns for ran in found} == dict(expected)
    assert [ran.total_ns for ran in found] == sorted(expected.values(), reverse=True)


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_finds_its_launch_and_an_operator_unless_it_is_replayed(name: str) -> None:
    trace = read_trace(path_of(name))
    calls = launch_of(trace, trace.on_device)
    assert (calls >= 0).all()
    assert (trace.kind[calls] == Kind.RUNTIME).all()
    operators = parents(trace)[calls]
    outside = {trace.name_of(call) for call in calls[operators < 0]}
    assert outside == ({"cudaGraphLaunch"} if name == "graph" else set())
    # The profiler says by itself which operator was running: it is that one, or one around it.
    inside = parents(trace)
    for row, operator in zip(trace.on_device.tolist(), operators.tolist(), strict=True):
        number, around = int(trace.external[row]), []
        while operator >= 0:
            around.append(int(trace.external[operator]))
            operator = int(inside[operator])
        assert not around or number in around


def test_the_kernels_of_a_replay_hang_off_its_one_launch() -> None:
    trace = read_trace(path_of("graph"))
    calls = launch_of(trace, trace.of(Kind.KERNEL))
    replays = Counter(call for call in calls.tolist() if trace.name_of(call) == "cudaGraphLaunch")
    assert list(replays.values()) == [43] * 6


@pytest.mark.parametrize("name", ["train", "compiled"])
def test_kernels_of_the_backward_pass_find_the_operator_of_the_forward_pass(name: str) -> None:
    trace = read_trace(path_of(name))
    steps = find_steps(trace)
    inside = parents(trace)
    forward = forward_of(trace, inside)
    calls = launch_of(trace, trace.on_device)
    main = main_thread(trace)
    # Gradients are added up, and the first one is made, without any operator that they would derive from.
    backward = [
        call
        for call in calls.tolist()
        if trace.lane[call] != main and int(steps.begin[0]) <= trace.start[call] < int(steps.end[-1])
    ]
    found = [call for call in backward if forward[call] >= 0]
    assert len(backward) > 100
    assert len(found) > 0.99 * len(backward)
    assert all(trace.lane[forward[call]] == main for call in found)


@pytest.mark.parametrize("name", NAMES)
def test_the_thread_that_drives_the_program_is_the_main_one_and_not_autograds(name: str) -> None:
    trace = read_trace(path_of(name))
    lane = trace.lanes[main_thread(trace)]
    assert lane.thread == lane.process


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_reproduces_the_trace_to_the_nanosecond(name: str) -> None:
    traced = built(read_trace(path_of(name)))
    found = fidelity(traced.graph, traced.start_ns, traced.end_ns)
    assert (found.worst_drift_ns, found.contradictions) == (0, 0)
    assert (found.ratio, found.step_ratio) == (1.0, 1.0)


@pytest.mark.parametrize("late", [-30_000, -200_000])
def test_a_device_whose_clock_is_behind_is_set_right(tmp_path: Path, late: int) -> None:
    made = document("infer")
    for event in made["traceEvents"]:
        if event.get("cat") in DEVICE:
            event["ts"] += late / 1000
    right, wrong = read_trace(path_of("infer")), read_trace(changed(tmp_path, made))
    expected, found = built(right), built(wrong)
    told = fidelity(found.graph, found.start_ns, found.end_ns)
    assert (told.worst_drift_ns, told.contradictions) == (0, 0)
    faster = [
        predict(one.graph, [Scale(one.tasks_of(trace.of(Kind.KERNEL)), 0.5)]).gain
        for one, trace in ((expected, right), (found, wrong))
    ]
    assert faster[1] == pytest.approx(faster[0], abs=0.02)


def waited(trace: Trace, traced: TracedGraph) -> Counter[str]:
    ends = traced.graph.kind == EdgeKind.END_AFTER
    return Counter(trace.name_of(row) for row in traced.row[traced.graph.target[ends]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train", {"cudaStreamSynchronize": 2}),
        ("infer", {"cudaMemcpyAsync": 3}),
        ("graph", {"cudaStreamSynchronize": 6}),
        ("compiled", {}),
    ],
)
def test_calls_that_wait_are_found_and_slow_launches_are_not_taken_for_them(
    name: str, expected: dict[str, int]
) -> None:
    trace = read_trace(path_of(name))
    assert waited(trace, built(trace)) == expected


def test_a_batch_on_another_stream_holds_up_the_kernels_that_wait_for_it() -> None:
    trace = read_trace(path_of("train"))
    traced = built(trace)
    copies = [r for r in trace.of(Kind.COPY).tolist() if "HtoD" in trace.name_of(r)]
    tasks = traced.tasks_of(copies)
    assert len(tasks) == 2
    out = np.isin(traced.graph.source, tasks)
    held = traced.row[traced.graph.target[out]]
    assert (trace.kind[held] == Kind.KERNEL).all()
    assert len(held) == 2
    assert (trace.lane[held] != trace.lane[copies[0]]).all()
    slower = predict(traced.graph, [SetDuration(tasks, 50_000_000)])
    assert slower.after_ns > 45_000_000


def test_what_would_be_faster_lies_between_the_hosts_time_and_the_devices() -> None:
    for name in NAMES:
        trace = read_trace(path_of(name))
        steps, traced = find_steps(trace), built(trace)
        hosts = traced.tasks_of(trace.of(Kind.OP, Kind.RUNTIME))
        device = traced.tasks_of(trace.on_device)
        no_host = predict(traced.graph, [Scale(hosts, 0.0), ShrinkGaps(hosts, 0.0)])
        no_device = predict(traced.graph, [Scale(device, 0.0), ShrinkGaps(device, 0.0)])
        busy = [breakdown(trace, int(b), int(e)).compute for b, e in zip(steps.begin, steps.end, strict=True)]
        # Kernels still need their time one after the other; without them the host still needs its own.
        assert no_host.after_ns >= 0.98 * np.median(busy), name
        assert no_host.after_ns < no_host.before_ns
        assert no_device.gain > -0.001
        if name == "graph":
            assert no_device.gain > 0.8
        if name in ("train", "compiled"):
            assert no_device.gain < 0.05  # The host never waits for long.


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [("train", 0.9, 1), ("infer", 0.8, 1), ("graph", 0.0, 0.3), ("compiled", 0.9, 1)],
)
def test_the_critical_path_runs_through_the_host_of_eager_steps_and_the_device_of_replays(
    name: str, lowest: float, highest: float
) -> None:
    trace = read_trace(path_of(name))
    traced = built(trace)
    path = critical_path(traced.graph, schedule(traced.graph))
    host = sum(share for lane, share in path.resource_share.items() if trace.lanes[lane].device < 0)
    assert lowest <= host <= highest


def test_kernels_that_a_trace_has_lost_are_missed_by_their_launches(tmp_path: Path) -> None:
    for name in NAMES:
        assert len(lost_launches(read_trace(path_of(name)))) == 0
    made = document("train")
    kernels = [e for e in made["traceEvents"] if e.get("cat") == "kernel"]
    lost = kernels[100:150]
    made["traceEvents"] = [e for e in made["traceEvents"] if e not in lost]
    trace = read_trace(changed(tmp_path, made))
    found = trace.correlation[lost_launches(trace)].tolist()
    assert sorted(found) == sorted(e["args"]["correlation"] for e in lost)


def described(trace: Trace, details: bool) -> list[tuple[Any, ...]]:
    """Rows in words, whatever numbers their texts and lanes have."""
    found = []
    for row in range(len(trace)):
        lane = trace.lanes[trace.lane[row]]
        kind, start, length = int(trace.kind[row]), int(trace.start[row]), int(trace.duration[row])
        told: list[Any] = [kind, start, length, trace.name_of(row), lane]
        if details:
            detail = int(trace.detail[row])
            table: Any = {Kind.OP: trace.inputs, Kind.KERNEL: trace.launches}.get(Kind(kind))
            told += [repr(table[detail]) if table is not None and detail >= 0 else detail]
            columns = (trace.correlation, trace.external, trace.sequence, trace.forward_thread, trace.size)
            told += [int(column[row]) for column in columns]
        found.append(tuple(told))
    return sorted(found)


@pytest.mark.parametrize("name", NAMES)
def test_events_read_by_their_lines_are_those_that_a_json_parser_reads(tmp_path: Path, name: str) -> None:
    other_layout = read_trace(changed(tmp_path, document(name)))
    own_layout = read_trace(path_of(name))
    assert described(own_layout, True) == described(other_layout, True)
    assert (own_layout.facts, own_layout.base_ns) == (other_layout.facts, other_layout.base_ns)
    assert own_layout.cuts == other_layout.cuts == ()
    times_only = read_trace(path_of(name), details=False)
    assert described(times_only, False) == described(other_layout, False)


def test_a_layout_of_torch_213_is_read_by_its_lines_too(tmp_path: Path) -> None:
    text = text_of("infer").decode()
    # One entry on each line, and the comma behind a duration on one of its own.
    for key in ("cat", "name", "pid", "tid"):
        text = text.replace(f', "{key}": ', f',\n    "{key}": ')
    text = text.replace(', "dur": ', ',\n    "dur": ').replace(',\n    "args"', '\n    ,\n    "args"')
    (tmp_path / "a.json").write_text(text)
    found, expected = read_trace(tmp_path / "a.json"), read_trace(path_of("infer"))
    assert described(found, True) == described(expected, True)
    for layout in (text.encode(), text_of("infer")):
        (scanned,) = (scan(block, arguments=True) for block in blocks(tmp_path, layout))
        assert scanned is not None
        # All but the profiler's own span, which is cut and so written otherwise, and its neighbour.
        assert len(scanned.heads) == len(expected) - 2
        assert len(scanned.arguments) == len(scanned.heads)


def blocks(folder: Path, text: bytes) -> list[bytes]:
    (folder / "blocks.json").write_bytes(text)
    return list(TraceFile(folder / "blocks.json").blocks())


def test_a_device_bound_step_is_the_devices_though_the_host_is_done_long_before() -> None:
    trace = read_trace(path_of("pageable"))
    steps = find_steps(trace)
    ran = as_run(trace, steps)
    # The host is a good part of a step ahead.
    assert (ran.end - steps.end > 20_000_000).all()
    kernels = trace.of(Kind.KERNEL)
    calls = launch_of(trace, kernels)
    for number in range(len(steps)):
        begin, end = int(ran.begin[number]), int(ran.end[number])
        here = kernels[(trace.start[kernels] >= begin) & (trace.start[kernels] < end)]
        launched = trace.start[calls]
        mine = kernels[(launched >= steps.begin[number]) & (launched < steps.end[number])]
        assert sorted(here.tolist()) == sorted(mine.tolist())
        parts = breakdown(trace, begin, end)
        assert parts.compute / parts.total > 0.9
        assert parts.host / parts.total < 0.03


def test_where_the_host_waits_in_a_copy_kernels_are_the_critical_path() -> None:
    trace = read_trace(path_of("pageable"))
    traced = built(trace)
    tasks = traced.tasks_of(trace.of(Kind.KERNEL))
    half = predict(traced.graph, [Scale(tasks, 0.5)])
    assert half.gain == pytest.approx(0.46, abs=0.03)
    copies = traced.tasks_of(trace.of(Kind.COPY))
    assert predict(traced.graph, [Scale(copies, 0.0)]).gain == pytest.approx(0.055, abs=0.015)


@pytest.mark.parametrize("name", ["infer", "graph"])
def test_steps_of_a_part_that_begins_in_the_middle_of_one_begin_where_the_others_do(name: str) -> None:
    trace = read_trace(path_of(name))
    steps = find_steps(trace)
    middle = (int(steps.begin[0]) + int(steps.end[0])) // 2
    part = trace.where(trace.start >= middle)
    found = like_steps(part, trace, steps)
    assert found is not None
    assert set(found.begin.tolist()) >= set(steps.begin[1:].tolist())
    assert len(found) <= len(steps)
    assert like_steps(read_trace(path_of("train")), trace, steps) is None
