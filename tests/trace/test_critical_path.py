"""The chain that determines the makespan, and what the other tasks could grow by."""

from __future__ import annotations

import numpy as np
import pytest
from tests.trace.timelines import END, SHAPES, Timeline, makespan, random_timeline

from trackside.trace.critical_path import StepKind, critical_path, slack
from trackside.trace.graph import EdgeKind, TaskGraph
from trackside.trace.schedule import schedule


@pytest.mark.parametrize("shape", SHAPES)
def test_the_path_is_as_long_as_the_timeline_and_every_step_leads_to_the_next(shape: str) -> None:
    for seed in range(80):
        graph = random_timeline(shape, seed).graph(seed=seed)
        found = schedule(graph)
        path = critical_path(graph, found)
        told = f"{shape}, seed {seed}"
        assert path.total_ns == found.makespan_ns, told
        assert path.start_ns[0] == 0, told
        assert (path.start_ns[1:] == (path.start_ns + path.length_ns)[:-1]).all(), told
        whole = pytest.approx(float(found.makespan_ns > 0))
        assert sum(path.resource_share.values()) + path.lag_share == whole, told
        assert path.task_share.sum() + path.gap_share + path.lag_share == whole, told
        assert _linked(graph, path.kind.tolist(), path.index.tolist()), told


def _linked(graph: TaskGraph, kinds: list[int], indices: list[int]) -> bool:
    """Whether each step belongs to what comes next on the path: by an edge, or by the order on a resource."""
    before: int | None = None
    edge: int | None = None
    for kind, index in zip(kinds, indices, strict=True):
        if kind == StepKind.LAG:
            if before is None or graph.source[index] != before:
                return False
            edge = index
            continue
        if edge is not None:
            if kind != StepKind.TASK or graph.target[edge] != index:
                return False
        elif before is None:
            if graph.previous[index] != -1:
                return False
        elif before != index and graph.previous[index] != before:
            edges = (graph.source == before) & (graph.target == index) & (graph.lag_ns == 0)
            if not edges.any():
                return False
        # A gap leads to the task that it lies before.
        before, edge = index, None
    return True


@pytest.mark.parametrize("shape", SHAPES)
def test_a_task_may_grow_by_its_slack_and_not_by_more(shape: str) -> None:
    for seed in range(25):
        timeline = random_timeline(shape, seed)
        graph = timeline.graph(seed=seed)
        found = schedule(graph)
        for task, room in enumerate(slack(graph, found).tolist()):
            told = f"{shape}, seed {seed}, task {task}"
            timeline.duration[task] += room
            assert makespan(timeline) == found.makespan_ns, told
            timeline.duration[task] += 1
            assert makespan(timeline) == found.makespan_ns + 1, told
            timeline.duration[task] -= room + 1


def test_tasks_on_the_path_have_no_slack_but_those_that_only_waited() -> None:
    for seed in range(40):
        graph = random_timeline("launches", seed).graph(seed=seed)
        found = schedule(graph)
        path = critical_path(graph, found)
        own = (path.kind == StepKind.TASK) & (path.length_ns > 0)
        assert (slack(graph, found)[path.index[own]] == 0).all(), seed


def _sync_case() -> Timeline:
    """Launch 0 → kernel 1 → sync 2 on the host → op 3, beside the short kernel 4."""
    made = Timeline()
    launch, kernel = made.add(0, 10), made.add(1, 100)
    sync, op = made.add(0, 2), made.add(0, 30, gap=8)
    short = made.add(2, 20)
    made.link(launch, kernel, 5)
    made.link(kernel, sync, 3, END)
    made.link(launch, short, 5)
    assert (launch, kernel, sync, op, short) == (0, 1, 2, 3, 4)
    return made


def test_the_path_goes_through_a_sync_to_the_kernel_that_it_waited_for() -> None:
    graph = _sync_case().graph()
    path = critical_path(graph, schedule(graph))
    steps = list(zip(path.kind.tolist(), path.index.tolist(), path.length_ns.tolist(), strict=True))
    assert steps == [
        (StepKind.TASK, 0, 10),
        (StepKind.LAG, 0, 5),
        (StepKind.TASK, 1, 100),
        (StepKind.LAG, 1, 3),
        (StepKind.TASK, 2, 0),
        (StepKind.GAP, 3, 8),
        (StepKind.TASK, 3, 30),
    ]
    assert path.start_ns.tolist() == [0, 10, 15, 115, 118, 118, 126]


def test_shares_are_told_by_resource_task_gap_and_lag() -> None:
    graph = _sync_case().graph()
    path = critical_path(graph, schedule(graph))
    assert path.resource_share == pytest.approx({0: 48 / 156, 1: 100 / 156})
    assert path.task_share == pytest.approx(np.array([10, 100, 0, 30, 0]) / 156)
    assert (path.gap_share, path.lag_share) == pytest.approx((8 / 156, 8 / 156))


def test_a_sync_may_grow_by_what_it_waits_anyway() -> None:
    graph = _sync_case().graph()
    # The sync starts at 10 and ends at 118 with 2 of its own; the short kernel ends at 35 of 156.
    assert slack(graph, schedule(graph)).tolist() == [0, 0, 106, 0, 121]


def test_a_graph_without_tasks_has_an_empty_path() -> None:
    graph = TaskGraph.from_arrays([], [])
    path = critical_path(graph, schedule(graph))
    assert (path.total_ns, len(path.kind), path.resource_share) == (0, 0, {})
    assert slack(graph, schedule(graph)).tolist() == []


def test_one_task_is_its_own_path() -> None:
    graph = TaskGraph.from_arrays([6], [10], gap_ns=[5])
    path = critical_path(graph, schedule(graph))
    assert path.kind.tolist() == [StepKind.GAP, StepKind.TASK]
    assert path.resource_share == {6: 1.0}
    assert slack(graph, schedule(graph)).tolist() == [0]


def test_tasks_of_no_length_make_a_path_of_no_length() -> None:
    graph = TaskGraph.from_arrays([0, 1], [0, 0], source=[0], target=[1], kind=[EdgeKind.END_AFTER])
    path = critical_path(graph, schedule(graph))
    assert path.total_ns == 0
    assert path.task_share.tolist() == [0, 0]


def test_the_schedule_of_another_graph_is_refused() -> None:
    graph = TaskGraph.from_arrays([0, 1], [5, 5], source=[0], target=[1])
    other = TaskGraph.from_arrays([0, 1], [5, 7], source=[0], target=[1], lag_ns=[1])
    with pytest.raises(ValueError, match="another graph's"):
        critical_path(graph, schedule(other))
