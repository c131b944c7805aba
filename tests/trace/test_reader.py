"""Traces are read whole, in blocks, and as far as they go."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.trace.kineto import Maker
from torch.profiler import ProfilerActivity, profile

from trackside.records.errors import TracksideError
from trackside.trace import file
from trackside.trace.model import Kind, Trace
from trackside.trace.reader import read_trace


def small() -> Maker:
    made = Maker()
    made.mark("ProfilerStep#1", 0.5, 100)
    made.op(
        "aten::mm",
        10.125,
        20.5,
        **{
            "External id": 3,
            "Sequence number": 9,
            "Input Dims": [[4, 5], [5, 6]],
            "Input type": ["float"] * 2,
        },
    )
    made.kernel("gemm", 12, 40.001, 30.002, **{"registers per thread": 90, "est. achieved occupancy %": 50})
    made.copy(71, 73, 5, 4096)
    return made


def same(one: Trace, other: Trace) -> bool:
    columns = ("kind", "start", "duration", "correlation", "external", "sequence", "size", "detail")
    return one.names == other.names and all(
        np.array_equal(getattr(one, column), getattr(other, column)) for column in columns
    )


def test_events_become_rows_sorted_by_start_with_times_in_nanoseconds(tmp_path: Path) -> None:
    trace = read_trace(small().write(tmp_path / "a.json"))
    assert [Kind(kind).name for kind in trace.kind] == [
        *("ANNOTATION", "OP", "RUNTIME", "KERNEL", "RUNTIME", "COPY"),
    ]
    assert trace.start.tolist() == [500, 10_125, 12_000, 40_001, 71_000, 73_000]
    assert trace.duration.tolist() == [100_000, 20_500, 2_000, 30_002, 2_000, 5_000]
    kernel = int(trace.of(Kind.KERNEL)[0])
    assert trace.name_of(kernel) == "gemm"
    assert trace.correlation[kernel] == trace.correlation[2]
    launch = trace.launches[trace.detail[kernel]]
    assert (launch.blocks, launch.registers, launch.occupancy) == (8, 90, 0.5)
    assert trace.inputs[trace.detail[1]].shapes == ((4, 5), (5, 6))
    assert (trace.external[1], trace.sequence[1]) == (3, 9)
    assert trace.size[trace.of(Kind.COPY)].tolist() == [4096]
    assert [lane.device for lane in trace.lanes] == [-1, 0]


@pytest.mark.parametrize("layout", [{}, {"indent": 2}, {"separators": (",", ":")}, {"indent": "\t"}])
@pytest.mark.parametrize("block", [64, 97, 333, 1 << 20])
def test_blocks_and_layout_of_the_file_make_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, layout: dict[str, str]
) -> None:
    made = small()
    for i in range(40):
        made.kernel(f"k{i % 3}", 100 + i, 200 + 3 * i, 2)
    expected = read_trace(made.write(tmp_path / "whole.json"))
    monkeypatch.setattr(file, "_BLOCK_BYTES", block)
    (tmp_path / "a.json").write_text(made.text(**layout))
    found = read_trace(tmp_path / "a.json")
    assert same(found, expected)
    assert found.cuts == ()


def test_compressed_files_and_bare_lists_are_read_too(tmp_path: Path) -> None:
    made = small()
    expected = read_trace(made.write(tmp_path / "a.json"))
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(made.text().encode()))
    (tmp_path / "list.json").write_text(json.dumps(made.events))
    assert same(read_trace(tmp_path / "a.json.gz"), expected)
    assert same(read_trace(tmp_path / "list.json"), expected)


@pytest.mark.parametrize("layout", [{}, {"indent": 2}])
def test_a_file_that_ends_anywhere_gives_the_events_before_and_says_so(
    tmp_path: Path, layout: dict[str, int]
) -> None:
    text = small().text(**layout)
    begin, end = text.index("[") + 1, text.rindex("]")
    counts = set()
    for length in range(begin, end, 7):
        (tmp_path / "cut.json").write_text(text[:length])
        trace = read_trace(tmp_path / "cut.json")
        assert trace.cuts, length
        counts.add(len(trace))
    assert counts >= {0, 1, 2, 3, 4, 5}


def test_a_damaged_compressed_file_gives_what_comes_before_the_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "_BLOCK_BYTES", 4096)
    made = Maker()
    for i in range(5000):
        made.kernel(f"kernel {i * 7919 % 5003}", i, 2 * i, 1)
    packed = gzip.compress(made.text().encode())
    (tmp_path / "a.json.gz").write_bytes(packed[: len(packed) // 2])
    trace = read_trace(tmp_path / "a.json.gz")
    assert 1000 < len(trace) < 10_000
    assert any("compressed" in cut.why for cut in trace.cuts)


# Looking at all that follows each of its brackets would take hours.
@pytest.mark.timeout(30)
def test_an_event_of_many_lists_that_does_not_end_is_soon_read(tmp_path: Path) -> None:
    begun = (
        small().text().rpartition("]")[0] + ', {"ph": "X", "args": {"dims": [' + "[4, 5], " * 200_000 + "[4"
    )
    (tmp_path / "a.json").write_text(begun)
    trace = read_trace(tmp_path / "a.json")
    assert len(trace) == 6
    assert "ends inside an event" in trace.cuts[0].why


def test_the_end_of_the_list_is_found_behind_a_damaged_event(tmp_path: Path) -> None:
    text = small().text()
    assert '"baseTimeNanoseconds"' not in text
    begun, bracket, _ = text.rpartition("]")
    damaged = (
        begun + ', {"ph": "X", "args": {"dims": [4, 5], "x": ' + bracket + ', "baseTimeNanoseconds": 1000}'
    )
    (tmp_path / "a.json").write_text(damaged)
    trace = read_trace(tmp_path / "a.json")
    assert len(trace) == 6
    assert trace.base_ns == 1000
    assert [cut.what for cut in trace.cuts] == ["1 events"]


def test_what_is_no_number_and_no_utf8_costs_nothing_else(tmp_path: Path) -> None:
    text = small().text(indent=2).replace('"bytes": 4096', '"bytes": 4096, "memory bandwidth (GB/s)": inf')
    (tmp_path / "a.json").write_bytes(text.replace("gemm", "g\u00e9mm").encode("latin-1"))
    trace = read_trace(tmp_path / "a.json")
    assert len(trace) == 6
    assert "g\ufffdmm" in trace.names
    assert trace.cuts == ()


def test_an_event_that_cannot_be_read_is_left_out_and_counted(tmp_path: Path) -> None:
    text = small().text(indent=2).replace('"aten::mm"', '"aten::mm" oops')
    (tmp_path / "a.json").write_text(text)
    trace = read_trace(tmp_path / "a.json")
    assert len(trace) == 5
    assert [cut.what for cut in trace.cuts] == ["1 events"]


@pytest.mark.parametrize(
    "event",
    [
        {"ph": "X", "cat": "kernel", "name": "k"},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": "soon", "pid": 0, "tid": 1},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1e300, "pid": 0, "tid": 1},
        {"ph": "X", "cat": ["kernel"], "name": "k", "ts": 1, "pid": 0, "tid": 1},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "pid": [0], "tid": 1},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "pid": 0, "tid": 1, "args": [1]},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "pid": 0, "tid": 1, "args": {"grid": {"x": 1}}},
        {"ph": "M", "name": "thread_name", "args": 3},
        {"ph": "i", "name": "[memory]", "ts": 1, "args": {}},
        "text",
        17,
        None,
    ],
)
def test_events_of_another_shape_are_passed_over(tmp_path: Path, event: object) -> None:
    made = small()
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": [*made.events, event]}))
    assert len(read_trace(tmp_path / "a.json")) in (6, 7)


def test_numbers_that_no_column_holds_become_unknown(tmp_path: Path) -> None:
    made = Maker()
    made.kernel("k", 0, 5, 1, correlation_of="x")
    made.events[1]["args"] |= {"correlation": 1 << 80, "External id": "12", "Sequence number": None}
    trace = read_trace(made.write(tmp_path / "a.json"))
    kernel = trace.of(Kind.KERNEL)
    assert (trace.correlation[kernel], trace.external[kernel], trace.sequence[kernel]) == (-1, 12, -1)


def test_whole_microseconds_since_1970_are_exact(tmp_path: Path) -> None:
    made = Maker()
    made.kernel("k", 1_694_000_000_123_457, 1_694_000_000_123_459, 3)
    trace = read_trace(made.write(tmp_path / "a.json"))
    assert trace.start.tolist() == [1_694_000_000_123_457_000, 1_694_000_000_123_459_000]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"hello", "does not begin like JSON"),
        (b"\x00\x01", "does not begin like JSON"),
        (b'{"a": 1}', "no list `traceEvents`"),
        (b'{"traceEvents": 3}', "no list `traceEvents`"),
    ],
)
def test_another_file_is_refused_with_what_it_lacks(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(TracksideError, match=why) as caught:
        read_trace(tmp_path / "a.json")
    assert caught.value.kind == "usage"


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TracksideError, match="there is no file"):
        read_trace(tmp_path / "none.json")
    with pytest.raises(TracksideError, match="cannot be read"):
        read_trace(tmp_path)


def test_a_trace_that_torch_wrote_now_agrees_with_the_profiler_itself(tmp_path: Path) -> None:
    a = torch.randn(64, 64)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as profiler:
        for _ in range(3):
            torch.relu(a @ a)
    profiler.export_chrome_trace(str(tmp_path / "a.json"))
    trace = read_trace(tmp_path / "a.json")
    for row in profiler.key_averages():
        if row.key.startswith("aten::"):
            here = np.flatnonzero(trace.named(row.key) & (trace.kind == Kind.OP))
            assert len(here) == row.count
            assert trace.duration[here].sum() == pytest.approx(
                row.cpu_time_total * 1000, abs=row.count * 1000
            )
    product = int(np.flatnonzero(trace.named("aten::mm"))[0])
    assert trace.inputs[trace.detail[product]].shapes[:2] == ((64, 64), (64, 64))
    assert trace.size[trace.of(Kind.MEMORY)].max() >= 64 * 64 * 4
    assert trace.base_ns > 0
    assert trace.cuts == ()


def test_allocations_are_the_same_whether_read_together_or_one_by_one(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        for size in range(1, 40):
            torch.ones(size) + 1
    file = tmp_path / "torch.json"
    profiler.export_chrome_trace(str(file))
    # One of another thread.
    file.write_text(
        re.sub(r'("name": "\[memory\]",\s*"pid": \d+,\s*"tid": )\d+', r"\g<1>77", file.read_text(), count=1)
    )
    document = json.loads(file.read_text())
    events = document["traceEvents"]
    allocations = [event for event in events if event.get("name") == "[memory]"]
    expected = [(event["args"]["Addr"], event["args"]["Bytes"]) for event in allocations]
    # Not in torch's layout, and with one that is damaged.
    other = tmp_path / "other.json"
    other.write_text(json.dumps(document))
    damaged = tmp_path / "damaged.json"
    damaged.write_text(file.read_text().replace('"Bytes": 4,', '"Bytes": "x",', 1))
    for path, lost in ((file, 0), (other, 0), (damaged, 1)):
        trace = read_trace(path)
        rows = trace.of(Kind.MEMORY)
        found = list(zip(trace.correlation[rows].tolist(), trace.size[rows].tolist(), strict=True))
        known = [one for one in found if one[1] != -1]
        assert len(found) == len(expected)
        assert len(known) == len(expected) - lost
        if not lost:
            assert sorted(found) == sorted(expected)
            threads = [trace.lanes[lane].thread for lane in trace.lane[rows].tolist()]
            assert threads == [str(event["tid"]) for event in sorted(allocations, key=lambda one: one["ts"])]
            assert len(set(threads)) == 2
            assert (trace.detail[rows] == -1).all()
            starts = [round(event["ts"] * 1000) for event in allocations]
            assert trace.start[rows].tolist() == pytest.approx(sorted(starts), abs=1)
