"""What derivatives took without the page faults that came with tracing."""

from pathlib import Path

import numpy as np
import pytest
from tests.trace.kineto import PROCESS, THREAD, Maker

from trackside.profiling.fresh_memory import MOST_TOUCH_NS, most_touch_ns, untouched
from trackside.trace.model import Kind, Trace
from trackside.trace.reader import read_trace


def traced(folder: Path, sizes: list[int]) -> Trace:
    """A product of 400 µs, and as many sums of 120 µs as there are sizes, each with that much new memory."""
    made = Maker()
    made.op("aten::mm", 0, 400)
    for place, size in enumerate(sizes):
        at = 500.0 + 200 * place
        made.op("aten::add", at, 120)
        args = {"Addr": 7, "Bytes": size, "Total Allocated": 0, "Device Id": -1}
        place_of = {"pid": PROCESS, "tid": THREAD, "ts": at + 1, "s": "t"}
        made.events.append(
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", **place_of, "args": args}
        )
    return read_trace(made.write(folder / "trace.json"))


def test_what_rows_took_longer_is_taken_from_those_that_filled_new_memory(tmp_path: Path) -> None:
    trace = traced(tmp_path, [400_000, 400_000, 4_000])
    rows = np.flatnonzero(trace.named("aten::mm", "aten::add"))
    # Four events with two borders of 450 ns each are tracing itself.
    found = untouched(trace, rows, 200_000 + 4 * 900)
    assert found / 1e3 == pytest.approx([399.1, 19.1, 19.1, 119.1], abs=0.2)


def test_rows_that_took_no_longer_keep_their_time(tmp_path: Path) -> None:
    trace = traced(tmp_path, [400_000])
    rows = np.flatnonzero(trace.named("aten::mm", "aten::add"))
    assert (untouched(trace, rows, -1_000.0) == trace.duration[rows]).all()


def test_no_more_is_taken_than_faults_can_cost(tmp_path: Path) -> None:
    trace = traced(tmp_path, [100_000])
    rows = np.flatnonzero(trace.named("aten::mm", "aten::add"))
    # 0.6 ns a byte at the most, whatever the rest of it was.
    assert untouched(trace, rows, 5e6)[1] / 1e3 == pytest.approx(120 - 60 - 0.9, abs=0.2)


def test_first_touches_cost_what_page_faults_say_and_no_more(tmp_path: Path) -> None:
    """A step that took longer for another reason is no proof of new memory."""
    trace = traced(tmp_path, [409_600, 409_600, 4_000])
    taken = trace.where(trace.kind == Kind.MEMORY)
    assert most_touch_ns(taken, 50.0) == pytest.approx(MOST_TOUCH_NS / 4)
    assert most_touch_ns(taken, 5_000.0) == MOST_TOUCH_NS
    assert most_touch_ns(taken, -3.0) == 0.0
    rows = np.flatnonzero(trace.named("aten::mm", "aten::add"))
    assert untouched(trace, rows, 5e6, 0.0)[1] / 1e3 == pytest.approx(120 - 0.9, abs=0.2)
