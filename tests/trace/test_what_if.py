"""What edits gain: against real removal in a simulator of another kind, and small cases done by hand."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from tests.trace.timelines import END, SHAPES, Timeline, queue_of, random_timeline, simulate

from trackside.trace.critical_path import critical_path
from trackside.trace.edits import Edit, Link, Move, Remove, Scale, SetDuration, ShrinkGaps, Unlink
from trackside.trace.graph import EdgeKind, TaskGraph
from trackside.trace.schedule import schedule
from trackside.trace.what_if import apply, combine, predict

HOST, COMPUTE, COPIES = 0, 1, 2


def _random_edits(rng: random.Random, timeline: Timeline, moves: bool) -> list[Edit]:
    tasks = sorted(timeline.duration)

    def some() -> list[int]:
        return rng.sample(tasks, rng.randint(0, max(1, len(tasks) // 4)))

    edits: list[Edit] = [Remove(some())]
    if rng.random() < 0.5:
        edits.append(Scale(some(), rng.choice([0.0, 0.5, 1.7])))
    if rng.random() < 0.5:
        edits.append(SetDuration(some(), rng.randint(0, 50)))
    if rng.random() < 0.5:
        edits.append(ShrinkGaps(some(), rng.choice([0.0, 0.25, 1.0])))
    if timeline.edges and rng.random() < 0.5:
        edits.append(Unlink(rng.sample(range(len(timeline.edges)), rng.randint(1, len(timeline.edges)))))
    if moves:
        for _ in range(rng.randint(1, 2)):
            edits.append(Move(some(), rng.choice([*timeline.queues, 77])))
    rng.shuffle(edits)
    return edits


def _edited(timeline: Timeline, edits: list[Edit], after: TaskGraph) -> Timeline:
    """The timeline after the edits, done one by one; only queues that were moved to are read off the graph.

    Stubs of the graph have the numbers after its tasks', in the order of the tasks that left.
    """
    made = Timeline(
        dict(timeline.duration),
        dict(timeline.gap),
        {resource: list(queue) for resource, queue in timeline.queues.items()},
        list(timeline.edges),
    )
    cut = {edge for edit in edits if isinstance(edit, Unlink) for edge in edit.edges}
    made.edges = [edge for number, edge in enumerate(made.edges) if number not in cut]
    wanted: dict[int, list[int]] = {}
    for edit in edits:
        if isinstance(edit, Scale):
            for task in edit.tasks:
                wanted.setdefault(task, []).append(round(timeline.duration[task] * edit.factor))
        if isinstance(edit, SetDuration):
            assert isinstance(edit.ns, int)
            for task in edit.tasks:
                wanted.setdefault(task, []).append(edit.ns)
        if isinstance(edit, ShrinkGaps):
            for task in edit.tasks:
                made.gap[task] = min(made.gap[task], round(timeline.gap[task] * edit.factor))
    for task, durations in wanted.items():
        traced = timeline.duration[task]
        made.duration[task] = min(traced, *durations) + max(traced, *durations) - traced
    removed = {task for edit in edits if isinstance(edit, Remove) for task in edit.tasks}
    waits = {target for _, target, _, kind in made.edges if kind is END}
    to: dict[int, int] = {}
    for edit in edits:
        if isinstance(edit, Move):
            for task in edit.tasks:
                to[task] = min(edit.resource, to.get(task, edit.resource))
    moved = {task for task in to if task not in removed and to[task] != timeline.resource_of(task)}
    left: dict[int, int] = {}
    for number, task in enumerate(sorted(moved | (removed & waits)), len(timeline.duration)):
        left[number] = made.leave(task) if task in moved else task
    for resource in {to[task] for task in moved}:
        queue = queue_of(after, resource)
        made.queues[resource] = [left.get(task, task) for task in queue]
    out = {*removed, *left.values()}
    # From the front of each queue on: what follows a removed wait by order must not come to wait by an edge.
    for task in [task for queue in made.queues.values() for task in queue if task in out]:
        made.remove(task)
    return made


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_edited_graph_runs_as_if_the_edits_had_been_done_by_hand(shape: str, moves: bool) -> None:
    for seed in range(80):
        rng = random.Random(seed)
        timeline = random_timeline(shape, seed)
        edits = _random_edits(rng, timeline, moves)
        after = apply(timeline.graph(seed=seed), edits)
        by_hand = _edited(timeline, edits, after)
        started, ended = simulate(by_hand)
        found = schedule(after)
        told = f"{shape}, seed {seed}, {edits}"
        for task in by_hand.duration:
            assert (found.start_ns[task], found.end_ns[task]) == (started[task], ended[task]), told
        assert found.makespan_ns == max(ended.values(), default=0), told
        assert critical_path(after, found).total_ns == found.makespan_ns, told


@pytest.mark.parametrize("shape", SHAPES)
def test_the_order_in_which_edits_are_named_changes_nothing(shape: str) -> None:
    for seed in range(30):
        rng = random.Random(seed)
        timeline = random_timeline(shape, seed)
        graph = timeline.graph(seed=seed)
        edits = [*_random_edits(rng, timeline, moves=True), *_random_edits(rng, timeline, moves=True)]
        found = [schedule(apply(graph, rng.sample(edits, len(edits)))).end_ns.tolist() for _ in range(3)]
        assert found[0] == found[1] == found[2], f"{shape}, seed {seed}, {edits}"


def test_no_edits_change_nothing() -> None:
    graph = random_timeline("any", 3).graph()
    assert predict(graph, []).gain == 0
    assert predict(graph, [Remove([]), Scale([], 0.5), Unlink([]), Move([], 3)]).gain == 0


def test_removing_everything_leaves_no_time() -> None:
    for shape in SHAPES:
        graph = random_timeline(shape, 1).graph()
        assert predict(graph, [Remove(range(graph.task_count))]).after_ns == 0


def test_a_graph_without_tasks_gains_nothing() -> None:
    found = predict(TaskGraph.from_arrays([], []), [Remove([])])
    assert (found.before_ns, found.after_ns, found.gain) == (0, 0, 0)


def _loop(steps: int, host: int, kernel: int) -> tuple[Timeline, list[int], list[int]]:
    """Steps of a launch, a kernel and a sync that waits for it; their syncs, and their kernels."""
    made, syncs, kernels = Timeline(), [], []
    for _ in range(steps):
        launch, work = made.add(HOST, host), made.add(COMPUTE, kernel)
        made.link(launch, work, 2)
        sync = made.add(HOST, 4)
        made.link(work, sync, 0, END)
        syncs.append(sync)
        kernels.append(work)
    return made, syncs, kernels


def test_without_its_sync_a_loop_takes_the_longer_of_host_and_device() -> None:
    made, syncs, kernels = _loop(8, host=30, kernel=50)
    found = predict(made.graph(kernels), [Remove(syncs)])
    assert (found.before_ns, found.after_ns) == (30 + 2 + 50, 50)
    assert found.gain == pytest.approx(32 / 82)


def test_shorter_kernels_shorten_the_waiting_and_not_the_syncs_own_cost() -> None:
    made, _, kernels = _loop(8, host=30, kernel=50)
    graph = made.graph(kernels)
    assert predict(graph, [Scale(kernels, 0.5)]).after_ns == 30 + 2 + 25
    assert predict(graph, [SetDuration(kernels, 0)]).after_ns == 30 + 4


def test_a_sync_that_takes_no_time_of_its_own_still_waits() -> None:
    made, syncs, kernels = _loop(8, host=30, kernel=50)
    graph = made.graph(kernels)
    assert predict(graph, [SetDuration(syncs, 0)]).gain == 0
    assert predict(graph, [Scale(syncs, 0)]).gain == 0


def test_a_step_whose_end_is_removed_ends_when_its_sync_would_have() -> None:
    made, syncs, _ = _loop(8, host=30, kernel=50)
    assert predict(made.graph(syncs), [Remove(syncs)]).after_ns == 50


def test_what_waits_for_a_removed_kernel_waits_for_the_one_before_it() -> None:
    made = Timeline()
    first, second = made.add(COMPUTE, 40), made.add(COMPUTE, 60)
    sync = made.add(HOST, 1)
    made.link(second, sync, 0, END)
    after = schedule(apply(made.graph(), [Remove([second])]))
    assert after.end_ns[sync] == after.end_ns[first] == after.makespan_ns == 40


def test_kernels_whose_launches_are_removed_stay_behind_the_launch_that_is_left() -> None:
    made = Timeline()
    launches = [made.add(HOST, 10) for _ in range(4)]
    kernels = [made.add(10 + number, 3) for number in range(4)]
    for launch, kernel in zip(launches, kernels, strict=True):
        made.link(launch, kernel, 5)
    after = schedule(apply(made.graph(), [Remove(launches[1:])]))
    assert after.start_ns[kernels].tolist() == [15] * 4


def test_a_thread_that_loses_its_first_task_does_not_start_earlier() -> None:
    made = Timeline()
    call = made.add(HOST, 50)
    first, second = made.add(5, 10), made.add(5, 10)
    made.link(call, first, 1)
    after = schedule(apply(made.graph(), [Remove([first])]))
    assert after.start_ns[second] == 51


def test_another_thread_that_a_removed_sync_released_still_waits_for_the_device() -> None:
    made = Timeline()
    kernel, sync, op = made.add(COMPUTE, 80), made.add(HOST, 1), made.add(HOST, 5)
    other = made.add(6, 5)
    made.link(kernel, sync, 2, END)
    made.link(sync, other, 3)
    after = schedule(apply(made.graph(), [Remove([sync])]))
    assert (after.start_ns[op], after.start_ns[other]) == (0, 85)


def test_a_kernel_whose_launch_goes_with_the_sync_before_it_does_not_wait_either() -> None:
    made = Timeline()
    slow, sync = made.add(COMPUTE, 80), made.add(HOST, 1)
    made.link(slow, sync, 0, END)
    launch, kernel = made.add(HOST, 5), made.add(COPIES, 10)
    made.link(launch, kernel, 2)
    assert schedule(apply(made.graph(), [Remove([sync, launch])])).start_ns[kernel] == 2


def test_the_gap_before_a_removed_task_stays_until_it_is_shrunk_too() -> None:
    made = Timeline()
    made.add(HOST, 10)
    middle, last = made.add(HOST, 10, gap=7), made.add(HOST, 10, gap=3)
    graph = made.graph()
    assert schedule(apply(graph, [Remove([middle])])).start_ns[last] == 10 + 7 + 3
    assert schedule(apply(graph, [Remove([middle]), ShrinkGaps([middle], 0)])).start_ns[last] == 10 + 3
    assert schedule(apply(graph, [ShrinkGaps([last], 0.34)])).start_ns[last] == 10 + 7 + 10 + 1


def test_nothing_is_left_of_a_last_task_that_is_removed() -> None:
    made = Timeline()
    launch, kernel = made.add(HOST, 10), made.add(COMPUTE, 20)
    made.link(launch, kernel, 5)
    last = made.add(HOST, 10, gap=7)
    assert predict(made.graph(), [Remove([kernel])]).after_ns == 27
    assert predict(made.graph(), [Remove([kernel, last])]).after_ns == 10


def test_an_edge_that_is_cut_is_not_kept_by_removing_its_task() -> None:
    made = Timeline()
    slow = made.add(COPIES, 90)
    waiting, behind = made.add(COMPUTE, 10), made.add(COMPUTE, 10)
    made.link(slow, waiting)
    graph = made.graph()
    assert schedule(apply(graph, [Remove([waiting])])).start_ns[behind] == 90
    assert schedule(apply(graph, [Remove([waiting]), Unlink([0])])).start_ns[behind] == 0


def _copy_case() -> tuple[Timeline, int, int]:
    """Per step a copy before a kernel on one stream, both launched ahead; the first copy and last kernel."""
    made = Timeline()
    for _ in range(3):
        for duration in (30, 50):
            made.link(made.add(HOST, 1), made.add(COMPUTE, duration))
    return made, 1, 11


def test_a_copy_moved_to_another_stream_overlaps_with_the_kernels() -> None:
    made, _, _ = _copy_case()
    graph = made.graph()
    copies, kernels = [1, 5, 9], [3, 7, 11]
    assert schedule(graph).makespan_ns == 1 + 3 * 80
    edits: list[Edit] = [Move(copies, COPIES), Link(copies, kernels)]
    after = schedule(apply(graph, edits))
    # Copies run back to back from 1 on, each kernel after its copy and the kernel before it.
    assert after.start_ns[copies].tolist() == [1, 31, 61]
    assert after.start_ns[kernels].tolist() == [31, 81, 131]
    assert predict(graph, edits).after_ns == 181


def test_without_a_link_a_moved_copy_holds_no_kernel_back() -> None:
    made, first_copy, _ = _copy_case()
    after = schedule(apply(made.graph(), [Move([first_copy], COPIES)]))
    assert after.start_ns[3] == 2


def test_a_moved_task_takes_its_turn_when_its_dependencies_are_over() -> None:
    made = Timeline()
    early, late = made.add(COPIES, 20), made.add(COPIES, 20)
    gate, opened = made.add(HOST, 100), made.add(3, 0)
    made.link(gate, late)
    half = made.add(5, 50)
    kernel, moved = made.add(COMPUTE, 300), made.add(COMPUTE, 10, gap=4)
    made.link(half, moved)
    after = apply(made.graph(), [Move([moved], COPIES)])
    assert queue_of(after, COPIES) == [early, moved, late]
    assert schedule(after).start_ns[moved] == 50
    assert after.task_count == made.graph().task_count + 1
    assert (opened, kernel) == (3, 5)


def test_moving_work_in_front_of_the_wait_for_it_does_not_lock_up() -> None:
    made = Timeline()
    batch = made.add(7, 60)
    get = made.add(HOST, 1)
    made.link(batch, get, 0, END)
    use = made.add(HOST, 10)
    after = schedule(apply(made.graph(), [Move([batch], HOST)]))
    assert (after.start_ns[batch], after.end_ns[get], after.start_ns[use]) == (0, 61, 61)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_move_keeps_the_order_of_the_others_and_follows_the_dependencies(shape: str) -> None:
    for seed in range(40):
        rng = random.Random(seed)
        timeline = random_timeline(shape, seed)
        graph = timeline.graph(seed=seed)
        resource = rng.choice(list(timeline.queues))
        others = [task for task in sorted(timeline.duration) if task not in timeline.queues[resource]]
        moved = rng.sample(others, min(len(others), 3))
        queue = queue_of(apply(graph, [Move(moved, resource)]), resource)
        assert [task for task in queue if task not in moved] == timeline.queues[resource], seed
        started, ended = simulate(timeline)
        waits = {target for _, target, _, kind in timeline.edges if kind is END}
        turn = {
            task: max((ended[s] + lag for s, t, lag, _ in timeline.edges if t == task), default=0)
            if task in moved
            else (ended if task in waits else started)[task]
            for task in queue
        }
        assert all(turn[before] <= turn[after] for before, after in pairwise(queue)), (shape, seed)


def test_moving_a_task_to_where_it_is_changes_nothing() -> None:
    graph = random_timeline("any", 5).graph()
    edits = [Move([task], int(graph.resource[task])) for task in range(graph.task_count)]
    assert (schedule(apply(graph, edits)).start_ns == schedule(graph).start_ns).all()


def test_a_removed_task_is_not_moved() -> None:
    made, first_copy, _ = _copy_case()
    graph = made.graph()
    found = apply(graph, [Move([first_copy], COPIES), Remove([first_copy])])
    assert (found.resource == graph.resource).all()


def test_several_edits_of_one_task_count_the_deepest_cut_and_the_largest_growth() -> None:
    graph = TaskGraph.from_arrays([0], [100])

    def after(*edits: Edit) -> float:
        return predict(graph, edits).after_ns

    assert after(Scale([0], 0.5), Scale([0], 0.8)) == 50
    assert after(Scale([0], 0.5), SetDuration([0], 30)) == 30
    assert after(Scale([0], 1.5), Scale([0], 1.2)) == 150
    assert after(Scale([0], 0.5), SetDuration([0], 120)) == 70
    assert after(Scale([0, 0], 0.5)) == 50
    assert after(SetDuration([0], 120), Remove([0])) == 0


def test_each_task_may_be_given_a_duration_of_its_own() -> None:
    graph = TaskGraph.from_arrays([0, 1, 2], [9, 9, 9])
    after = apply(graph, [SetDuration(np.array([2, 0]), np.array([1, 3]))])
    assert after.duration_ns.tolist() == [3, 9, 1]


def test_other_durations_leave_what_is_known_about_the_edges() -> None:
    graph = random_timeline("any", 3).graph()
    assert apply(graph, [Scale([0], 0.5)]).incoming is graph.incoming


def test_an_edit_that_costs_time_has_a_negative_gain() -> None:
    assert predict(TaskGraph.from_arrays([0], [100]), [Scale([0], 1.5)]).gain == pytest.approx(-0.5)


def test_two_findings_about_the_same_time_gain_it_once() -> None:
    # A kernel that the host waits for: a shorter kernel and no waiting gain the same time.
    made, syncs, kernels = _loop(20, host=50, kernel=40)
    graph = made.graph(kernels)
    found = combine(graph, {"sync": [Remove(syncs)], "kernel": [Scale(kernels, 0.25)]})
    assert found.together.before_ns == 92
    alone = [found.each[name].alone for name in ("sync", "kernel")]
    assert alone == pytest.approx([42 / 92, 30 / 92])
    assert found.together.gain == pytest.approx(42 / 92)
    assert found.together.gain < sum(alone)
    assert found.each["sync"].last_in == pytest.approx(12 / 92)
    assert found.each["kernel"].last_in == pytest.approx(0)


def test_two_findings_that_need_each_other_gain_nothing_alone() -> None:
    graph = TaskGraph.from_arrays([0, 1], [100, 100])
    found = combine(graph, {"a": [Scale([0], 0.5)], "b": [Scale([1], 0.5)]})
    assert (found.each["a"].alone, found.each["b"].alone) == (0, 0)
    assert found.together.gain == found.each["a"].last_in == found.each["b"].last_in == 0.5


def test_findings_that_have_nothing_in_common_add_up() -> None:
    graph = TaskGraph.from_arrays([0, 0], [60, 40])
    found = combine(graph, {"a": [Scale([0], 0.5)], "b": [Remove([1])]})
    assert found.together.gain == pytest.approx(0.7)
    assert (found.each["a"].alone, found.each["a"].last_in) == pytest.approx((0.3, 0.3))


def test_no_findings_gain_nothing() -> None:
    found = combine(TaskGraph.from_arrays([0], [5]), {})
    assert (found.together.gain, found.each) == (0, {})


def test_edits_with_the_same_content_are_equal_whatever_they_were_made_from() -> None:
    assert Remove(np.array([1, 2])) == Remove([1, 2]) == Remove(range(1, 3))
    assert Move(np.array([4]), 1) == Move((4,), 1)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (Remove([0, 3]), "Remove: needed task numbers below 3, found task 3"),
        (Scale([9], 0.5), "Scale: needed task numbers below 3, found task 9"),
        (Unlink([1]), "Unlink: needed edge numbers below 1, found edge 1"),
        (Link([0], [4]), "Link: needed task numbers below 3, found task 4"),
        (Link([2], [0]), "dependencies run in a circle: task 0 → task 1 .* → task 2 .* → task 0"),
        (Scale([0, 1, 2], 1e308), "needed times that add up to at most"),
    ],
)
def test_an_edit_that_does_not_fit_the_graph_is_refused(edit: Edit, words: str) -> None:
    graph = TaskGraph.from_arrays([0, 0, 1], [5, 5, 5], source=[1], target=[2])
    with pytest.raises(ValueError, match=words):
        apply(graph, [edit])


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        (Remove, (np.array([True, False]),), "tasks: needed whole numbers, found bool"),
        (Remove, (3,), r"tasks: needed a value per position, found shape \(\)"),
        (Remove, ([-1],), "tasks: needed 0 or more, found -1"),
        (Scale, ([0], -0.5), "factor: needed a finite number, 0 or more, found -0.5"),
        (Scale, ([0], float("nan")), "factor: needed a finite number"),
        (SetDuration, ([0], -1), "ns: needed 0 or more, found -1"),
        (SetDuration, ([0, 1], [1]), "ns: needed one value or 2, found 1"),
        (ShrinkGaps, ([0], 1.5), "factor: needed 0 to 1, found 1.5"),
        (Link, ([0], [1, 2]), "needed as many targets as sources, found 2 and 1"),
        (Link, ([0], [1], -3), "lag_ns: needed 0 or more, found -3"),
        (Link, ([0], [1], 0, 7), "7 is not a valid EdgeKind"),
        (Move, ([0], -2), "resource: needed 0 or more, found -2"),
    ],
)
def test_an_edit_that_means_nothing_is_refused(kind: type, values: tuple[object, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kind(*values)


def test_a_link_may_make_a_task_wait() -> None:
    graph = TaskGraph.from_arrays([0, 1], [5, 50])
    found = schedule(apply(graph, [Link([1], [0], 3, EdgeKind.END_AFTER)]))
    assert (found.start_ns[0], found.end_ns[0]) == (0, 53)


def test_a_link_against_the_former_order_is_followed() -> None:
    for source, target in ((0, 1), (1, 0)):
        graph = TaskGraph.from_arrays([0, 1], [5, 50])
        after = schedule(apply(graph, [Link([source], [target])]))
        assert after.start_ns[target] == after.end_ns[source] > 0


def test_an_edited_graph_can_be_edited_again() -> None:
    made, syncs, kernels = _loop(8, host=30, kernel=50)
    graph = apply(made.graph(kernels), [Remove(syncs)])
    assert predict(graph, [Scale(kernels, 0.5)]).after_ns == 30
    # Removed syncs do not wait again where other tasks come to their thread.
    assert schedule(apply(graph, [Move(kernels, HOST)])).makespan_ns == 8 * (30 + 50)
