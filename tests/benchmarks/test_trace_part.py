"""The trace that both tools read is a real one made longer, and the bars say what the runs found."""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.context import Context
from benchmarks.repeated_trace import write_repeated

from benchmarks import trace, trace_child
from trackside.trace.links import launch_of, lost_launches, parents
from trackside.trace.reader import read_trace
from trackside.trace.steps import find_steps
from trackside.trace.timeline import breakdown, ran_longest


def test_each_turn_of_a_repeated_trace_is_the_real_one_again(tmp_path: Path) -> None:
    turns = write_repeated(trace.SOURCE, tmp_path / "a.json", 5_000_000)
    assert turns == 3
    once, found = read_trace(trace.SOURCE), read_trace(tmp_path / "a.json")
    document = json.loads((tmp_path / "a.json").read_text())
    assert (tmp_path / "a.json").stat().st_size >= 5_000_000
    assert found.cuts == ()
    device, again = once.on_device, found.on_device
    assert len(again) == turns * len(device)
    assert np.array_equal(found.duration[again], np.tile(once.duration[device], turns))
    # No turn reaches into another, and no number comes twice.
    length = once.end.max() - once.start.min()
    begins = found.start[again].reshape(turns, -1).min(1)
    assert (np.diff(begins) >= 0.99 * length).all()
    calls = launch_of(found, again)
    assert (calls >= 0).all()
    assert (parents(found)[calls] >= 0).all()
    assert len(lost_launches(found)) == 0
    arrows = [event["id"] for event in document["traceEvents"] if event["ph"] == "s"]
    first = [
        event["id"]
        for event in json.loads(gzip.decompress(trace.SOURCE.read_bytes()))["traceEvents"]
        if event["ph"] == "s"
    ]
    assert len(set(arrows)) == turns * len(set(first))
    assert len(find_steps(found)) > turns * len(find_steps(once))


def test_both_ways_to_read_answer_what_the_trace_package_answers(tmp_path: Path) -> None:
    write_repeated(trace.SOURCE, tmp_path / "a.json", 1_000_000)
    read = read_trace(tmp_path / "a.json")
    device = read.on_device
    begin, end = int(read.start[device].min()), int(read.end[device].max())
    for answer in (trace_child.times(tmp_path / "a.json"), trace_child.details(tmp_path / "a.json")):
        assert answer["compute_us"] * 1000 == pytest.approx(breakdown(read, begin, end).compute)
        assert answer["top"][0][0] == ran_longest(read, begin, end)[0].name
        assert answer["events"] == len(read)
    whole = trace_child.whole(tmp_path / "a.json")
    assert whole["steps"] == len(find_steps(read))
    assert whole["critical_path_ns"] > 0
    assert trace_child.peak_bytes() > 10 << 20


def found(**changes: Any) -> dict[str, Any]:
    return {
        "seconds": 1.0,
        "peak_bytes": 150,
        "compute_us": 80.0,
        "other_us": 5.0,
        "idle_us": 15.0,
        "top": [["gemm", 50.0], ["add", 30.0]],
    } | changes


def test_bars_hold_by_the_best_runs_and_by_rounds_and_fail_where_they_must() -> None:
    runs = {
        "hta": [found(seconds=22.0, peak_bytes=900), found(seconds=66.0, peak_bytes=900)],
        "times": [found(), found(seconds=3.0)],
        "details": [found(), found()],
    }
    assert trace._speed(runs).passed is True
    assert "22.0 times" in trace._speed(runs).found
    by_best_only = {"times": [found(), found(seconds=10.0)]}
    by_rounds_only = {"hta": [found(seconds=19.0), found(seconds=90.0)]}
    assert trace._speed(runs | by_best_only).passed is False
    assert trace._speed(runs | by_rounds_only).passed is False
    assert trace._memory(runs, 100).passed is True
    assert trace._memory(runs, 70).passed is False
    assert trace._memory(runs | {"details": [found(peak_bytes=201)]}, 100).passed is False
    assert trace._same(found(), runs).passed is True
    assert trace._same(found(compute_us=80.001), runs).passed is False
    assert trace._same(found(top=[["add", 50.0], ["gemm", 30.0]]), runs).passed is False
    large = {"peak_bytes": 7 << 30, "seconds": 9.0, "events": 5}
    assert trace._large(large, 10**9).passed is False


def test_without_the_other_tool_the_part_says_what_to_install(tmp_path: Path) -> None:
    """This environment has no such package; one that has is named."""
    context = Context("cpu", None, tmp_path, hta=sys.executable, identity={})
    if trace._has_hta(sys.executable):
        pytest.skip("HolisticTraceAnalysis is installed here")
    outcome = trace.run(context)
    assert not outcome.failed
    assert outcome.bars == []
    assert f"pip install {trace.PACKAGE}" in outcome.notes[0]
    assert "--hta" in outcome.notes[0]
