"""The offset between two clocks, from markers that both have seen."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from tests.profiling.raw_trace import raw_marker_spans
from tests.trace.kineto import Maker

from trackside.profiling.clock import NoMarkers, fit, marker_spans
from trackside.profiling.markers import MARKER_PREFIX, ClockMarkers, Marker
from trackside.trace.reader import read_trace

OFFSET = 1_790_857_026_000_000_000


def marker(number: int, at: int, width: int = 1000) -> Marker:
    return Marker(f"{MARKER_PREFIX}1/{number}", at, at + width, at + 2 * width)


def seen(one: Marker, offset: int = OFFSET, into: float = 0.5) -> tuple[str, int, int]:
    """As the trace has it: begun and ended that far into what our clock allows."""
    first, last = one.inside_ns - one.before_ns, one.after_ns - one.inside_ns
    return one.name, one.before_ns + round(into * first) + offset, one.inside_ns + round(into * last) + offset


def test_the_offset_is_what_all_markers_allow() -> None:
    rng = np.random.default_rng(3)
    markers = [marker(n, 10_000_000 * n, int(rng.integers(300, 20_000))) for n in range(60)]
    found = fit(markers, [seen(one, into=float(rng.random())) for one in markers])
    assert len(found.offsets_ns) == 1
    assert abs(found.offset_ns - OFFSET) <= found.error_ns
    assert found.error_ns < 300
    assert found.to_log([OFFSET + 123_456]).tolist() == [OFFSET + 123_456 - found.offset_ns]
    assert found.to_trace(found.to_log([OFFSET + 77])).tolist() == [OFFSET + 77]


def test_one_marker_is_enough_and_its_width_is_the_error() -> None:
    found = fit([marker(0, 5_000, 600)], [seen(marker(0, 5_000, 600))])
    assert found.offset_ns == OFFSET
    assert 250 <= found.error_ns <= 350


@pytest.mark.parametrize("narrow", ["start", "end"])
def test_either_end_of_a_marker_narrows_the_offset_down(narrow: str) -> None:
    inside = 60 if narrow == "start" else 20_000
    one = Marker(f"{MARKER_PREFIX}1/0", 0, inside, 20_060)
    found = fit([one], [seen(one, into=0.9)])
    assert abs(found.offset_ns - OFFSET) <= found.error_ns <= 31


def test_clocks_that_drift_are_followed_piece_by_piece() -> None:
    # 100 ppm: 10 µs in every 100 ms, with markers of 1 µs.
    markers = [marker(n, 100_000_000 * n) for n in range(11)]
    found = fit(markers, [seen(one, OFFSET + one.inside_ns // 10_000) for one in markers])
    assert len(found.offsets_ns) > 5
    asked = np.arange(0, 1_000_000_000, 7_000_001)
    true = asked + OFFSET + asked // 10_000
    assert np.abs(found.to_log(true) - asked).max() <= found.error_ns
    assert np.abs(found.to_trace(asked) - true).max() <= found.error_ns
    assert found.error_ns < 12_000
    assert (np.diff(found.to_log(np.sort(true))) > 0).all()


def test_a_step_of_the_clock_shows_in_the_error() -> None:
    markers = [marker(n, 100_000_000 * n) for n in range(10)]
    found = fit(markers, [seen(one, OFFSET + (50_000 if n >= 5 else 0)) for n, one in enumerate(markers)])
    assert len(found.offsets_ns) == 2
    assert found.error_ns >= 50_000


def test_markers_missing_from_the_trace_do_not_matter_while_one_is_left() -> None:
    markers = [marker(n, 10_000 * n) for n in range(5)]
    found = fit(markers, [("aten::mm", 1, 2), seen(markers[3]), (f"{MARKER_PREFIX}9/9", 1, 2)])
    assert abs(found.offset_ns - OFFSET) <= found.error_ns


@pytest.mark.parametrize("events", [[], [("aten::mm", 1, 2)], [(f"{MARKER_PREFIX}9/9", 1, 2)]])
def test_without_a_marker_the_fit_is_refused_with_the_reason(events: list[tuple[str, int, int]]) -> None:
    with pytest.raises(NoMarkers, match="of 1 markers emitted none is among the"):
        fit([marker(0, 5)], events)


def test_a_time_that_the_trace_rounds_is_no_contradiction() -> None:
    one = marker(0, 5_000, 2)
    name, start, end = seen(one)
    found = fit([one], [(name, start + 4, end - 4)])
    assert abs(found.offset_ns - OFFSET) <= found.error_ns


class Range:
    """A range as torch's; says when it was entered and left."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_markers_come_at_both_ends_and_every_tenth_of_a_second_between() -> None:
    now = 0

    def clock() -> int:
        nonlocal now
        now += 100
        return now

    markers = ClockMarkers(clock, Range)
    markers.begin()
    first = len(markers.markers)
    for _ in range(1000):
        now += 1_000_000
        markers.tick()
    between = len(markers.markers) - first
    markers.end()
    assert first >= 2
    assert len(markers.markers) - first - between == first
    assert 9 <= between <= 10
    assert len({one.name for one in markers.markers}) == len(markers.markers)
    assert all(one.before_ns < one.inside_ns < one.after_ns for one in markers.markers)


def test_a_real_trace_is_aligned_to_a_few_microseconds(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        markers = ClockMarkers()
        markers.begin()
        asked = []
        for n in range(20):
            before = time.perf_counter_ns()
            with torch.profiler.record_function(f"asked {n}"):
                asked.append((before, time.perf_counter_ns()))
            time.sleep(0.002)
            markers.tick()
        markers.end()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    found = fit(markers.markers, raw_marker_spans(events))
    assert found.error_ns < 5_000
    starts = {event["name"]: round(event["ts"] * 1000) for event in events if event.get("ph") == "X"}
    for n, (before, inside) in enumerate(asked):
        (at,) = found.to_log([starts[f"asked {n}"]]).tolist()
        assert before - found.error_ns <= at <= inside + found.error_ns


def test_the_devices_picture_of_a_marker_is_not_taken_for_the_hosts(tmp_path: Path) -> None:
    made = Maker()
    made.op(f"{MARKER_PREFIX}1/0", 1.5, 2.0)
    made.add("gpu_user_annotation", f"{MARKER_PREFIX}1/0", 99.0, 2.0)
    made.op("aten::mm", 1.5, 2.0)
    trace = read_trace(made.write(tmp_path / "trace.json"))
    ((name, start, end),) = marker_spans(trace)
    assert (name, end - start) == (f"{MARKER_PREFIX}1/0", 2000)
    assert start == trace.start.min()
