"""Operations of torch joined to lines by time alone, and what the log costs a program of torch's."""

import json
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.profiling.raw_trace import raw_marker_spans

from trackside.profiling.clock import fit
from trackside.profiling.line_log import LineLog
from trackside.profiling.line_times import line_spans
from trackside.profiling.markers import MARKER_PREFIX, ClockMarkers

torch = pytest.importorskip("torch")
from tests.profiling import torch_program  # noqa: E402 - needs torch

SOURCE = Path(torch_program.__file__).read_text().splitlines()


def is_user(file: str) -> bool:
    return file == torch_program.__file__


def line_with(text: str) -> int:
    (found,) = [number for number, line in enumerate(SOURCE, 1) if text in line]
    return found


def profiled(steps: int, out: Path) -> tuple[list[dict[str, Any]], list[int | None]]:
    """The operations of a few steps, and the line of each by the time at which it began."""
    a, b = torch.randn(32, 32), torch.randn(32, 32)
    for _ in range(3):
        torch_program.step(a, b)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        markers = ClockMarkers()
        log = LineLog(is_user, tick=markers.tick)
        markers.begin()
        log.start()
        for _ in range(steps):
            torch_program.step(a, b)
        logged = log.stop()
        markers.end()
    profiler.export_chrome_trace(str(out))
    trace = json.loads(out.read_text())["traceEvents"]
    operations = [event for event in trace if event.get("cat") == "cpu_op"]
    operations = [event for event in operations if not event["name"].startswith(MARKER_PREFIX)]
    clock = fit(markers.markers, raw_marker_spans(trace))
    spans = line_spans(logged)
    found: list[int | None] = [None] * len(operations)
    for thread in {event["tid"] for event in operations}:
        mine = [n for n, event in enumerate(operations) if event["tid"] == thread]
        starts = [round(operations[n]["ts"] * 1000) for n in mine]
        for n, line in zip(mine, spans.line_at(thread, clock.to_log(starts)).lines.tolist(), strict=True):
            found[n] = None if line < 0 else spans.stacks.lines[line].line
    return operations, found


def test_every_operation_lands_on_its_line(tmp_path: Path) -> None:
    steps = 200
    operations, lines = profiled(steps, tmp_path / "trace.json")
    found = Counter((event["name"], line) for event, line in zip(operations, lines, strict=True))
    assert (line_with("a @ b"), line_with("torch.relu(c)")) == (5, 6)
    expected = {
        ("aten::matmul", 5): 1,
        ("aten::mm", 5): 1,
        ("aten::relu", 6): 1,
        ("aten::mul", line_with("x * y")): 1,
        ("aten::chunk", line_with("e.chunk(4)")): 1,
        ("aten::exp", line_with("part.exp()")): 4,
        ("aten::mean", line_with("part.exp()")): 4,
        ("aten::tanh", line_with("d.tanh()")): 3,
        ("aten::sigmoid", line_with("e.sigmoid()")): 3,
        ("aten::sqrt", line_with("y.sqrt()")): 1,
        ("aten::sub", line_with("first - second")): 1,
    }
    for (name, line), each in expected.items():
        where = {at: count for (one, at), count in found.items() if one == name}
        assert set(where) == {line}, name
        assert where[line] % (each * steps) == 0, name  # an operation may have others of its name inside


@pytest.mark.slow
def test_the_log_costs_less_than_a_twentieth_of_a_step_of_a_hundred_lines() -> None:
    x, w = torch.randn(224, 224), torch.randn(224, 224)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        ratios = [overhead(x, w)]
        while ratios[-1] >= 1.05 and len(ratios) < 4:
            ratios.append(overhead(x, w))
    finally:
        torch.set_num_threads(threads)
    assert min(ratios) < 1.05, ratios


def overhead(x: Any, w: Any) -> float:
    """Logged over plain time of a step: the median over rounds that each have both."""
    log = LineLog(is_user)
    ratios = []
    for _ in range(12):
        plain = statistics.median(step_times(x, w))
        log.start()
        logged = statistics.median(step_times(x, w))
        events = log.stop()
        assert sum(number > 0 for number in events.numbers) > 5 * 100, "a hundred lines a step"
        ratios.append(logged / plain)
    return statistics.median(ratios)


def step_times(x: Any, w: Any) -> list[int]:
    took = []
    for _ in range(5):
        start = time.perf_counter_ns()
        torch_program.long_step(x, w)
        took.append(time.perf_counter_ns() - start)
    return took[1:]
