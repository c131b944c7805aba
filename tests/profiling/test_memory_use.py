"""A GPU's memory from its allocator's snapshot: the peak, who holds it, and what is left of a damaged one."""

import copy
import json
import random
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.profiling.snapshots import Allocator
from tests.trace.kineto import THREAD, Maker

from trackside.profiling.attribution import Attribution, attribute
from trackside.profiling.clock import ClockFit
from trackside.profiling.line_events import CALLED, CodePlace, Costs, LineEvents, ThreadStart
from trackside.profiling.line_stacks import Line
from trackside.profiling.line_times import line_spans
from trackside.profiling.memory_log import MOST_ENTRIES, read_snapshot
from trackside.profiling.memory_use import BEFORE, MemoryUse, Owner, device_memory
from trackside.trace.reader import read_trace

MB = 1 << 20
TRAIN, LIBRARY = "/project/train.py", "/lib/torch/nn/modules/linear.py"


def users(file: str) -> bool:
    return not file.startswith("/lib")


def line(number: int) -> Owner:
    return Owner(Line(TRAIN, number), "")


def use(
    snapshot: dict[str, Any],
    held: list[tuple[int, int, str]] | None = None,
    ends_us: tuple[int, ...] = (),
    attribution: Attribution | None = None,
) -> MemoryUse | None:
    # Through JSON, as it comes from the program's process.
    history = json.loads(json.dumps(read_snapshot(snapshot, users)))
    if "cuda:0" not in history:
        return None
    began = snapshot["device_traces"][0][0].get("time_us", 0)
    return device_memory(
        "cuda:0",
        history["cuda:0"],
        attribution,
        held or [],
        0,
        began * 1000,
        [end * 1000 for end in ends_us],
    )


class Training:
    """Three steps of which each takes an activation and a scratch, the second step the largest."""

    def __init__(self) -> None:
        device = Allocator()
        self.weights = device.alloc(8 * MB, (TRAIN, 3))
        self.batch = device.alloc(2 * MB, (TRAIN, 4))
        device.record()
        self.ends = []
        for scratch in (4, 30, 4):
            activation = device.alloc(10 * MB, (LIBRARY, 125), (TRAIN, 11), (TRAIN, 20))
            temporary = device.alloc(scratch * MB, (LIBRARY, 9), (TRAIN, 12), (TRAIN, 20))
            device.free(temporary)
            device.free(activation)
            self.ends.append(device.now_us)
        device.free(self.batch)
        self.device = device


def test_the_peak_is_held_by_the_innermost_lines_of_the_program_and_what_was_there_before() -> None:
    run = Training()
    found = use(run.device.snapshot(), [(run.weights, 8 * MB, "parameters")], tuple(run.ends))
    assert found is not None
    assert found.peak_bytes == (8 + 2 + 10 + 30) * MB
    assert found.owners == {
        line(12): 30 * MB,
        line(11): 10 * MB,
        Owner(None, "parameters"): 8 * MB,
        Owner(None, BEFORE): 2 * MB,
    }
    assert list(found.owners.values()) == sorted(found.owners.values(), reverse=True)
    before, second, _ = found.step_ends_ms
    assert before < found.peak_ms < second
    assert found.series[0] == (0.0, 10 * MB)
    assert max(size for _, size in found.series) == found.peak_bytes
    assert found.series[-1][1] == 8 * MB, "the batch was given back at the end"


def test_bytes_are_those_that_were_asked_for() -> None:
    device = Allocator()
    weights, gone = device.alloc(1000), device.alloc(3)
    device.record()
    device.alloc(700, (TRAIN, 5))
    device.free(gone)
    found = use(device.snapshot(), [(weights, 1000, "parameters")])
    assert found is not None
    assert found.owners == {Owner(None, "parameters"): 1000, line(5): 700, Owner(None, BEFORE): 3}
    assert found.peak_bytes == 1703


def test_what_is_reserved_is_that_of_the_peak_and_new_segments_are_counted() -> None:
    run = Training()
    found = use(run.device.snapshot())
    assert found is not None
    # A segment of 20 MiB was there; the first step fits into it and one more, 30 MiB want one of their own.
    assert found.reservations == (2, 50 * MB, 0)
    assert found.reserved_bytes == 70 * MB
    later = run.device
    # No gap is large enough for it, so that more is reserved than at the peak.
    later.free(later.alloc(31 * MB, (TRAIN, 30)))
    lower = use(later.snapshot())
    assert lower is not None
    assert (lower.peak_bytes, lower.reserved_bytes, lower.reservations.segments) == (50 * MB, 70 * MB, 3)
    later.alloc(100 * MB, (TRAIN, 30))
    after = use(later.snapshot())
    assert after is not None
    assert (after.peak_bytes, after.reserved_bytes) == (108 * MB, 201 * MB)


def test_a_block_that_was_given_back_is_not_named_by_what_lies_there_later() -> None:
    device = Allocator()
    first = device.alloc(6 * MB)
    device.record()
    peak = device.alloc(5 * MB, (TRAIN, 7))
    device.free(first)
    device.free(peak)
    again = device.alloc(6 * MB, (TRAIN, 8))
    assert again in (first, peak)
    found = use(device.snapshot(), [(first, 6 * MB, "gradients")])
    assert found is not None
    assert found.owners == {Owner(None, BEFORE): 6 * MB, line(7): 5 * MB}


@pytest.mark.parametrize(("kept", "expected"), [(3, 3 * MB), (0, None)])
def test_memory_that_every_step_leaves_is_growth(kept: int, expected: int | None) -> None:
    device = Allocator()
    device.alloc(MB)
    device.record()
    ends = []
    for _ in range(5):
        if kept:
            device.alloc(kept * MB, (TRAIN, 40))
        device.free(device.alloc(2 * MB, (TRAIN, 41)))
        ends.append(device.now_us)
    found = use(device.snapshot(), ends_us=tuple(ends))
    assert found is not None
    assert found.growth_bytes == expected
    assert found.left == ({line(40): 3 * MB} if kept else {})


def test_a_list_of_single_figures_is_no_growth() -> None:
    device = Allocator()
    device.record()
    ends = []
    for _ in range(6):
        device.alloc(512, (TRAIN, 40))
        device.free(device.alloc(2 * MB, (TRAIN, 41)))
        ends.append(device.now_us)
    found = use(device.snapshot(), ends_us=tuple(ends))
    assert found is not None
    assert (found.growth_bytes, found.left) == (None, {})


def test_growth_that_stops_is_none() -> None:
    device = Allocator()
    device.record()
    ends = []
    for step in range(5):
        if step < 3:
            device.alloc(MB, (TRAIN, 40))
        device.free(device.alloc(2 * MB, (TRAIN, 41)))
        ends.append(device.now_us)
    found = use(device.snapshot(), ends_us=tuple(ends))
    assert found is not None
    assert found.growth_bytes is None


def test_an_allocation_without_python_is_said_to_be_that() -> None:
    device = Allocator()
    device.record()
    device.alloc(MB)
    device.alloc(2 * MB, (LIBRARY, 1))
    found = use(device.snapshot())
    assert found is not None
    assert found.owners == {Owner(None, "outside of Python"): 3 * MB}


def of_two_threads(folder: Path, late_us: float = 0.0) -> Attribution:
    """Lines 11 and 12 run an operator each on the main thread; autograd runs their derivatives on its own."""
    made, engine = Maker(), "autograd::engine::evaluate_function: "
    made.op("aten::exp", 110, 80, **{"Sequence number": 1})
    made.op("aten::mean", 210, 80, **{"Sequence number": 2})
    for start, name, number in ((310, "MeanBackward0", 2), (410, "ExpBackward0", 1)):
        about = {"Sequence number": number, "Fwd thread id": 1, "tid": 99}
        made.op(engine + name, start + late_us, 80, **about)
        made.op(name, start + late_us + 5, 70, **about)
    trace = read_trace(made.write(folder / "trace.json"))
    times, numbers = [100_000, 101_000, 200_000], [CALLED - 11, 11, 12]
    events = LineEvents(
        100_000,
        500_000,
        array("q", times),
        array("q", [0] * 3),
        array("q", [0] * 3),
        array("q", numbers),
        (CodePlace(TRAIN, "step", 10),),
        (ThreadStart(THREAD, "main"),),
        costs=Costs(plain_line_ns=0.0),
    )
    same = ClockFit(np.array([0]), np.array([0]), 0)
    return attribute(trace, line_spans(events), same)


def two_threads() -> Allocator:
    device = Allocator(began_us=90)
    device.record()
    device.alloc(MB, (LIBRARY, 1), (TRAIN, 11))
    # Without a frame: one while the first derivative runs, two in the second.
    for now, size in ((340, 2), (420, 4), (470, 8)):
        device.now_us = now
        device.alloc(size * MB)
    return device


def test_what_a_derivative_takes_is_its_operators_lines(tmp_path: Path) -> None:
    found = use(two_threads().snapshot(), attribution=of_two_threads(tmp_path))
    assert found is not None
    assert found.owners == {
        Owner(Line(TRAIN, 11), "", backward=True): 12 * MB,
        Owner(Line(TRAIN, 12), "", backward=True): 2 * MB,
        line(11): MB,
    }


def test_a_clock_that_does_not_fit_joins_nothing(tmp_path: Path) -> None:
    found = use(two_threads().snapshot(), attribution=of_two_threads(tmp_path, late_us=70))
    assert found is not None
    assert found.owners == {Owner(None, "outside of Python"): 14 * MB, line(11): MB}


def test_a_failed_allocation_is_counted_and_holds_nothing() -> None:
    run = Training()
    run.device.fail(1 << 40)
    found = use(run.device.snapshot())
    assert found is not None
    assert found.reservations.failures == 1
    assert found.peak_bytes == 50 * MB


def test_a_history_whose_beginning_is_lost_tells_of_the_rest() -> None:
    run = Training()
    whole = run.device.snapshot()
    for lost in range(1, len(whole["device_traces"][0])):
        cut = copy.deepcopy(whole)
        del cut["device_traces"][0][:lost]
        found = use(cut)
        assert found is None or 0 < found.peak_bytes <= 50 * MB
        if found is not None:
            assert sum(found.owners.values()) == found.peak_bytes
            assert found.series[-1][1] == 8 * MB, "what is held at the end does not depend on the beginning"


def test_a_full_history_is_said_to_be_cut() -> None:
    device = Allocator()
    device.record()
    device.alloc(MB, (TRAIN, 1))
    snapshot = device.snapshot()
    entry = snapshot["device_traces"][0][-1]
    snapshot["device_traces"][0] += [entry] * (MOST_ENTRIES - len(snapshot["device_traces"][0]))
    found = use(snapshot)
    assert found is not None
    assert found.peak_bytes == MB, "one address holds one block"
    assert found.incomplete == ["the allocator's history was full: only the end of these steps is known"]


HOSTILE: list[Any] = [None, 7, "alloc", [], {}, {"action": "alloc"}, {"action": "??", "addr": 1, "size": 2}]
HOSTILE += [
    {"action": "alloc", "addr": "x", "size": 1, "time_us": 1, "frames": []},
    {"action": "alloc", "addr": 1, "size": None, "time_us": 1, "frames": []},
    {"action": "alloc", "addr": 1, "size": 1, "time_us": 1, "frames": [{}]},
    {"action": "alloc", "addr": 1, "size": 1, "time_us": 1, "frames": [{"filename": TRAIN, "line": "x"}]},
    {"action": "alloc", "addr": 1 << 80, "size": 1, "time_us": 1, "frames": []},
    {"action": "alloc", "addr": 1, "size": -5, "time_us": 1, "frames": []},
]


def test_entries_that_are_none_are_counted_and_change_nothing() -> None:
    run = Training()
    clean, dirty = run.device.snapshot(), run.device.snapshot()
    chance = random.Random(4)
    trace = dirty["device_traces"][0] = list(clean["device_traces"][0])
    for one in HOSTILE:
        trace.insert(chance.randrange(1, len(trace)), one)
    dirty["segments"] += [None, {}, {"device": 0, "blocks": [None, {"state": "active_allocated"}]}]
    expected, found = use(clean), use(dirty)
    assert expected is not None
    assert found is not None
    assert (found.peak_bytes, found.owners) == (expected.peak_bytes, expected.owners)
    (said,) = found.incomplete
    assert said.endswith("of the allocator's history could not be read")


@pytest.mark.parametrize("snapshot", [{}, {"segments": None, "device_traces": None}, {"device_traces": [[]]}])
def test_a_snapshot_without_a_history_gives_nothing(snapshot: dict[str, Any]) -> None:
    assert read_snapshot(snapshot, users) == {}


def test_many_points_are_thinned_and_keep_peak_and_valleys() -> None:
    device = Allocator()
    device.record()
    for number in range(6000):
        device.free(device.alloc(MB + number * 8, (TRAIN, 5)))
    found = use(device.snapshot())
    assert found is not None
    assert len(found.series) <= 2001
    assert max(size for _, size in found.series) == found.peak_bytes == MB + 5999 * 8
    assert min(size for _, size in found.series) == 0
    assert [at for at, _ in found.series] == sorted(at for at, _ in found.series)
