"""Building a task graph: what is accepted, and what is refused with which words."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.trace.timelines import SHAPES, DeadlockError, Timeline, random_timeline, simulate

from trackside.trace.graph import EdgeKind, TaskGraph


def _refused(**columns: Any) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        TaskGraph.from_arrays(**{"resource": [0, 0, 1], "duration_ns": [1, 1, 1], **columns})
    return str(caught.value)


def test_tasks_of_a_resource_follow_each_other_by_index_if_nothing_else_is_said() -> None:
    graph = TaskGraph.from_arrays([7, 3, 7, 3, 7], [1] * 5)
    assert graph.previous.tolist() == [-1, -1, 0, 1, 2]


def test_tasks_of_a_resource_follow_each_other_by_the_given_order_and_ties_by_index() -> None:
    graph = TaskGraph.from_arrays([0, 0, 0, 0], [1] * 4, order_by=[5, -2, 5, 9])
    assert graph.previous.tolist() == [1, -1, 0, 2]


def test_what_is_not_given_is_zero_and_holds_the_start() -> None:
    graph = TaskGraph.from_arrays([0, 1], [1, 1], source=[0], target=[1])
    assert graph.gap_ns.tolist() == [0, 0]
    assert (graph.lag_ns.tolist(), graph.kind.tolist()) == ([0], [EdgeKind.START_AFTER])


def test_the_graph_is_not_touched_by_later_changes_to_what_was_given() -> None:
    durations = np.array([4, 5])
    graph = TaskGraph.from_arrays([0, 0], durations)
    durations[0] = 99
    assert graph.duration_ns.tolist() == [4, 5]
    with pytest.raises(ValueError, match="read-only"):
        graph.duration_ns[0] = 1


def test_every_task_stands_after_what_holds_it_back() -> None:
    for seed in range(40):
        graph = random_timeline("any", seed).graph(seed=seed)
        place = np.argsort(graph.order)
        assert sorted(graph.order.tolist()) == list(range(graph.task_count))
        assert (place[graph.source] < place[graph.target]).all(), seed
        follower = np.flatnonzero(graph.previous >= 0)
        assert (place[graph.previous[follower]] < place[follower]).all(), seed


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"duration_ns": [1, -5, 1]}, "duration_ns: needed 0 or more, found -5 at task 1"),
        ({"duration_ns": [1, 2]}, "duration_ns: needed 3 values, one per task, found shape (2,)"),
        ({"duration_ns": [[1, 2, 3]]}, "duration_ns: needed 3 values, one per task, found shape (1, 3)"),
        ({"duration_ns": [1.0, 2.5, 1.0]}, "duration_ns: needed whole numbers, found float64"),
        ({"duration_ns": [True, False, True]}, "duration_ns: needed whole numbers, found bool"),
        (
            {"duration_ns": np.array([1, 2, 2**63], dtype=np.uint64)},
            "duration_ns: needed 0 or more, found 9223372036854775808 at task 2",
        ),
        (
            {"duration_ns": [2**61, 2**61, 2**61]},
            "needed times that add up to at most 2**62 ns, found 6.92e+18",
        ),
        ({"resource": [0, -1, 0]}, "resource: needed 0 or more, found -1 at task 1"),
        ({"gap_ns": [0, 0, -1]}, "gap_ns: needed 0 or more, found -1 at task 2"),
        ({"gap_ns": [0]}, "gap_ns: needed 3 values, one per task, found shape (1,)"),
        ({"order_by": [0, 1]}, "order_by: needed 3 values, one per task, found shape (2,)"),
        ({"source": [0, 3], "target": [1, 2]}, "source: needed 0 to 2, found 3 at edge 1"),
        ({"source": [0, 1], "target": [1, -1]}, "target: needed 0 to 2, found -1 at edge 1"),
        ({"source": [0], "target": [1, 2]}, "target: needed 1 values, one per edge, found shape (2,)"),
        ({"source": [0], "target": [2], "lag_ns": [-2]}, "lag_ns: needed 0 or more, found -2 at edge 0"),
        ({"source": [0], "target": [2], "kind": [2]}, "kind: needed 0 to 1, found 2 at edge 0"),
        ({"step_ends": [0, 3]}, "step_ends: needed 0 to 2, found 3 at step 1"),
        ({"step_ends": [1]}, "step_ends: needed a task of its own for each of two or more steps, found [1]"),
        (
            {"step_ends": [1, 1]},
            "step_ends: needed a task of its own for each of two or more steps, found [1, 1]",
        ),
    ],
)
def test_a_column_that_cannot_be_is_refused(columns: dict[str, Any], words: str) -> None:
    assert _refused(**columns) == words


def test_a_task_that_waits_for_itself_is_refused() -> None:
    assert _refused(source=[2], target=[2]) == "dependencies run in a circle: task 2 → task 2 (edge 0)"


def test_a_circle_is_shown_with_the_order_and_the_edge_that_close_it() -> None:
    # Task 1 comes behind task 0 on their resource; task 0 waits for the kernel 2, which task 1 launches.
    assert _refused(source=[1, 2], target=[2, 0]) == (
        "dependencies run in a circle: "
        "task 0 → task 1 (order on resource 0) → task 2 (edge 0) → task 0 (edge 1)"
    )


def test_a_wait_inside_a_circle_is_refused_too() -> None:
    said = _refused(source=[1, 2], target=[2, 0], kind=[0, int(EdgeKind.END_AFTER)])
    assert said.startswith("dependencies run in a circle: task 0")


def test_a_long_circle_is_shown_by_its_beginning() -> None:
    with pytest.raises(ValueError, match=r"task 8 \(order on resource 0\) → … 992 more$"):
        TaskGraph.from_arrays([0] * 1000, [1] * 1000, source=[999], target=[0])


@pytest.mark.parametrize("shape", SHAPES)
def test_a_graph_is_refused_exactly_where_time_would_stand_still(shape: str) -> None:
    refused = 0
    for seed in range(40):
        rng = random.Random(seed)
        timeline = random_timeline(shape, seed)
        tasks = sorted(timeline.duration)
        for _ in range(2):
            timeline.link(rng.choice(tasks), rng.choice(tasks), kind=rng.choice(list(EdgeKind)))
        if _stands_still(timeline):
            refused += 1
            with pytest.raises(ValueError, match="circle"):
                timeline.graph(seed=seed)
        else:
            timeline.graph(seed=seed)
    assert 4 <= refused <= 36


def _stands_still(timeline: Timeline) -> bool:
    try:
        simulate(timeline)
    except DeadlockError:
        return True
    return False
