"""A trimmed trace is small, whole in itself, and says the same about its step."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.trace.real import NAMES, path_of, text_of
from torch.profiler import ProfilerActivity, profile

from trackside.trace.links import launch_of, lost_launches
from trackside.trace.model import Kind, Trace
from trackside.trace.reader import read_trace
from trackside.trace.steps import find_steps
from trackside.trace.timeline import breakdown, ran_longest
from trackside.trace.trimmed import write_trimmed


def middle(trace: Trace) -> tuple[int, int]:
    """A step that has others before or behind it."""
    steps = find_steps(trace)
    return int(steps.begin[1]), int(steps.end[1])


def loaded(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_step_of_a_trimmed_trace_has_the_same_kernels_and_breakdown(tmp_path: Path, name: str) -> None:
    trace = read_trace(path_of(name))
    begin, end = middle(trace)
    told = write_trimmed(path_of(name), trace, tmp_path / "t.json.gz", begin, end)
    found = read_trace(tmp_path / "t.json.gz")
    assert found.cuts == ()
    assert told.events == len(found) < len(trace)
    assert (told.end_ns, told.left_out) == (end, 0)
    assert breakdown(found, begin, end) == breakdown(trace, begin, end)
    ran = [
        [(one.name, one.calls, one.total_ns) for one in ran_longest(each, begin, end)]
        for each in (trace, found)
    ]
    assert ran[0] == ran[1]
    assert (launch_of(found, found.on_device) >= 0).all()
    assert len(lost_launches(found)) == 0
    assert found.facts == trace.facts
    assert {lane.name for lane in found.lanes if lane.device < 0} <= {lane.name for lane in trace.lanes}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("left_out", [0.0, 0.6])
def test_viewers_find_what_they_need_in_every_event(tmp_path: Path, name: str, left_out: float) -> None:
    """Also where the range begins inside a step: launches, and ends of arrows, then lie before it."""
    trace = read_trace(path_of(name))
    begin, end = middle(trace)
    begin += int(left_out * (end - begin))
    write_trimmed(path_of(name), trace, tmp_path / "t.json.gz", begin, end)
    found = read_trace(tmp_path / "t.json.gz")
    calls = launch_of(found, found.on_device)
    assert (calls >= 0).all()
    if left_out and name == "graph":
        assert (found.end[calls] < begin).any()
    events = loaded(tmp_path / "t.json.gz")
    begins = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    arrows: dict[Any, Counter[str]] = {}
    for event in events:
        assert event["ph"] in "XMsfi"
        assert {"name", "pid", "tid", "ts"} <= event.keys()
        if event["ph"] == "X":
            assert event["dur"] >= 0
        elif event["ph"] in "sf":
            # An arrow is drawn between the events that begin where its ends lie.
            assert (event["pid"], event["tid"], event["ts"]) in begins
            arrows.setdefault((event["cat"], event["id"]), Counter())[event["ph"]] += 1
    assert arrows
    assert all(ends["s"] == 1 and ends["f"] >= 1 for ends in arrows.values())
    # Every kernel has its arrow, as in the whole trace.
    kernels = [e["args"]["correlation"] for e in events if e.get("cat") == "kernel"]
    assert all(("ac2g", number) in arrows for number in kernels)


@pytest.mark.parametrize("most", [20_000, 100_000, 400_000])
def test_a_step_that_is_too_large_is_shortened_and_says_so(tmp_path: Path, most: int) -> None:
    trace = read_trace(path_of("train"))
    begin, end = middle(trace)
    told = write_trimmed(path_of("train"), trace, tmp_path / "t.json", begin, end, most_bytes=most)
    assert (tmp_path / "t.json").stat().st_size < 1.1 * most + 2000
    found = read_trace(tmp_path / "t.json")
    assert begin < told.end_ns < end
    whole = (trace.start < end) & (trace.end >= begin)
    assert told.left_out >= np.count_nonzero(whole) - told.events > 0
    assert len(found) == told.events
    assert breakdown(found, begin, told.end_ns) == breakdown(trace, begin, told.end_ns)
    assert json.loads((tmp_path / "t.json").read_text())["trackside"]["left_out"] == told.left_out


def test_no_room_for_anything_is_refused(tmp_path: Path) -> None:
    trace = read_trace(path_of("graph"))
    with pytest.raises(ValueError, match="most_bytes"):
        write_trimmed(path_of("graph"), trace, tmp_path / "t.json", *middle(trace), most_bytes=100)
    assert list(tmp_path.iterdir()) == []


# Stacks of a process that has run thousands of tests take minutes.
@pytest.mark.slow
def test_frames_of_python_go_first_and_what_spans_the_range_is_cut_to_it(tmp_path: Path) -> None:
    def step() -> None:
        (torch.ones(8, 8) @ torch.ones(8, 8)).sum()

    with (
        profile(activities=[ProfilerActivity.CPU], with_stack=True, profile_memory=True) as profiler,
        torch.profiler.record_function("everything"),
    ):
        for _ in range(30):
            step()
    profiler.export_chrome_trace(str(tmp_path / "a.json"))
    trace = read_trace(tmp_path / "a.json")
    steps = find_steps(trace)
    begin, end = int(steps.begin[2]), int(steps.end[12])
    whole = write_trimmed(tmp_path / "a.json", trace, tmp_path / "whole.json", begin, end)
    events = json.loads((tmp_path / "whole.json").read_text())["traceEvents"]
    outer = next(event for event in events if event["name"] == "everything")
    assert (outer["ts"] * 1000, outer["dur"] * 1000) == pytest.approx((begin, end - begin), abs=1)
    assert any(event.get("cat") == "python_function" for event in events)
    assert whole.left_out == 0
    size = (tmp_path / "whole.json").stat().st_size
    less = write_trimmed(tmp_path / "a.json", trace, tmp_path / "less.json", begin, end, int(0.8 * size))
    assert less.end_ns == end
    assert less.left_out > 0
    assert "python_function" not in (tmp_path / "less.json").read_text()
    assert breakdown(read_trace(tmp_path / "less.json"), begin, end) == breakdown(trace, begin, end)


def test_names_of_the_machine_and_its_folders_are_left_out(tmp_path: Path) -> None:
    text = text_of("graph").replace(
        b'"schemaVersion": 1', b'"schemaVersion": 1, "host_name": "secret", "traceName": "/secret/a"', 1
    )
    (tmp_path / "a.json").write_bytes(text)
    trace = read_trace(tmp_path / "a.json")
    write_trimmed(tmp_path / "a.json", trace, tmp_path / "t.json", *middle(trace))
    assert "secret" not in (tmp_path / "t.json").read_text()


def test_times_since_1970_are_kept_to_the_last_digit(tmp_path: Path) -> None:
    """Traces of old releases have no base; as floats their times would be a quarter of a microsecond off."""
    text = text_of("graph").replace(b'"ts": 39887', b'"ts": 17939887')
    (tmp_path / "a.json").write_bytes(text)
    trace, short = read_trace(tmp_path / "a.json"), read_trace(path_of("graph"))
    kernels = trace.of(Kind.KERNEL)
    assert np.array_equal(np.diff(trace.start[kernels]), np.diff(short.start[short.of(Kind.KERNEL)]))
    begin, end = middle(trace)
    told = write_trimmed(tmp_path / "a.json", trace, tmp_path / "t.json", begin, end)
    assert len(read_trace(tmp_path / "t.json")) == told.events


def test_what_json_has_no_word_for_does_not_reach_the_viewer(tmp_path: Path) -> None:
    text = text_of("graph").replace(b'"memory bandwidth (GB/s)": ', b'"memory bandwidth (GB/s)": inf, "x": ')
    (tmp_path / "a.json").write_bytes(text)
    trace = read_trace(tmp_path / "a.json")
    begin, end = middle(trace)
    told = write_trimmed(tmp_path / "a.json", trace, tmp_path / "t.json", begin, end)
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(text)
    json.loads((tmp_path / "t.json").read_text())
    assert len(read_trace(tmp_path / "t.json")) == told.events
    assert told.left_out == 0
