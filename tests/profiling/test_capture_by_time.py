"""Whole programs whose optimizers take no step, or late: windows go by the clock until they do."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.profiling.test_capture import TRAINING, profiled, windows_of
from tests.trace.kineto import Maker

from trackside.profiling.captured import Captured, read_capture, steps_beside
from trackside.profiling.heap import takes_memory_anew
from trackside.profiling.inputs_log import INPUTS_FILE
from trackside.trace.model import Kind, Trace
from trackside.trace.reader import read_trace
from trackside.trace.steps import find_steps

# The same in every turn, and long enough for the first round of windows.
INFERENCE = """
import json, sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8)).eval()

def answer(x):
    with torch.inference_mode():
        return model(x).softmax(-1)

def serve(until):
    stamps = []
    while time.monotonic() < until:
        with torch.profiler.record_function("request"):
            x = torch.randn(64, 128)
            answer(x)
        stamps.append(time.perf_counter_ns())
    return stamps

stamps = serve(time.monotonic() + float(sys.argv[1]))
print("served")
if len(sys.argv) > 2:
    open(sys.argv[2], "w").write(json.dumps(stamps))
"""


@pytest.mark.timeout(120)
def test_a_loop_of_inference_has_its_windows_steps_and_lines(tmp_path: Path) -> None:
    ended, messages = profiled(tmp_path, INFERENCE, "4", str(tmp_path / "stamps"))
    assert (ended.exit_code, ended.trouble) == (0, None)
    assert (tmp_path / "out").read_text() == "served\n"
    assert (tmp_path / "err").read_text() == ""
    assert list(windows_of(tmp_path)) == ["warm", "A", "N", "L", "T", "B", "done"]
    assert all(m["by_time"] for m in messages if m["kind"] == "window")

    found = read_capture(tmp_path / "results")
    assert found.missing == []
    assert found.by_time
    assert found.steps is not None
    assert found.steps.found_by == "repetition"
    assert [one.window for one in found.windows] == ["A", "T", "B"]
    assert found.traced is not None
    # One product a layer: a step is one request, and not one layer.
    in_step = found.traced.named("aten::linear").sum() / found.traced.named("aten::softmax").sum()
    assert in_step == pytest.approx(2, rel=0.1)
    # All but those at the ends, side by side.
    assert len(found.steps) == pytest.approx(found.traced.named("aten::softmax").sum(), abs=2)
    assert (found.steps.begin[1:] == found.steps.end[:-1]).all()
    # By the requests that the program itself counts in that time, which others may hold up.
    assert found.timed_ns is not None
    begin, end = found.timed_ns
    served = sum(begin <= at <= end for at in json.loads((tmp_path / "stamps").read_text()))
    untraced = found.windows[0]
    assert untraced.step_ms == pytest.approx((end - begin) / 1e6 / served, rel=0.1)
    assert untraced.steps == pytest.approx(served, rel=0.1)
    assert found.attribution is not None
    times = {line.line: time.cpu_ns for line, time in found.attribution.lines.items()}
    called = INFERENCE.split("\n").index("        return model(x).softmax(-1)") + 1
    assert max(times, key=lambda line: times[line]) == called
    assert found.attribution.attributed_share > 0.95


PARTS = """
import sys, time, torch
torch.set_num_threads(1)
d, q = torch.randn(400, 128), torch.randn(96, 128)
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    parts = []
    for i in range(96):
        h = d * q[i]
        parts.append(h.sum(-1))
    torch.stack(parts)
"""


@pytest.mark.timeout(120)
def test_tracing_brings_no_new_memory_to_a_program_that_takes_none(tmp_path: Path) -> None:
    # One round, and so the last one: only there the heap may be told.
    ended, _ = profiled(tmp_path, PARTS, "3", own_heap=True, seconds=0.3)
    assert (ended.exit_code, ended.trouble) == (0, None)
    windows = windows_of(tmp_path)
    if takes_memory_anew(windows["A"]):
        pytest.skip("the heap happens to lie so that it gives memory back by itself")
    assert not windows["A"]["heap_told"]
    found = read_capture(tmp_path / "results")
    assert found.attribution is not None
    for name, trace in ("T", found.traced), ("B", found.attribution.trace):
        assert windows[name]["heap_told"]
        taken = windows[name]["faults"][-1] - windows[name]["faults"][0]
        # A product has 50 pages; what is recorded takes some too.
        assert trace is not None
        assert taken < 5 * trace.named("aten::mul").sum(), name


def _products(trace: Trace | None) -> set[tuple[tuple[int, ...], ...]]:
    assert trace is not None
    numbers = trace.detail[trace.named("aten::addmm") & (trace.kind == Kind.OP)]
    return {trace.inputs[number].shapes[1] for number in numbers.tolist() if number >= 0}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("rows", "noted"),
    [
        pytest.param("64", True, id="one-shape", marks=pytest.mark.slow),
        pytest.param("next(lengths)", False, id="a-new-one-each-time", marks=pytest.mark.slow),
    ],
)
def test_shapes_are_noted_before_the_last_round_where_they_do_not_change(
    tmp_path: Path, rows: str, noted: bool
) -> None:
    program = INFERENCE.replace("def serve", "import itertools\nlengths = itertools.count(1)\n\ndef serve")
    program = program.replace("torch.randn(64, 128)", f"torch.randn({rows} % 4096 + 1, 128)")
    # One round: half a second of warm-up at its most, then three tenths for each window.
    ended, _ = profiled(tmp_path, program, "3", seconds=0.6)
    assert (ended.exit_code, ended.trouble) == (0, None)
    assert (tmp_path / "err").read_text() == ""
    results = tmp_path / "results"
    assert (results / INPUTS_FILE).exists() is noted
    assert bool(read_trace(results / "trace.json").inputs) is not noted
    found = read_capture(results)
    assert found.steps is not None
    assert found.steps.found_by == "repetition"
    shapes = _products(found.traced)
    assert shapes == {(65, 128), (65, 512)} if noted else len(shapes) > 20


@pytest.mark.timeout(120)
def test_an_optimizers_steps_take_the_place_of_what_the_clock_gave(tmp_path: Path) -> None:
    late = TRAINING.replace(
        "for step in range(steps):",
        "import time\nuntil = time.monotonic() + 2.5\nwhile time.monotonic() < until:\n"
        "    model(torch.randn(64, 64))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.05)\nfor step in range(steps):",
    ).replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.05)\n", "", 1)
    ended, messages = profiled(tmp_path, late, "60", warmup=1, steps=4)
    assert ended.exit_code == 0
    assert [m["kind"] for m in messages if m["kind"] == "steps"] == ["steps"]
    document = json.loads((tmp_path / "results" / "windows.json").read_text())
    assert (document["by"], document["trouble"]) == ("steps", [])
    counts = {window["stage"]: len(window["ends_ns"]) for window in document["windows"]}
    assert counts == {"warm": 1, "A": 4, "L": 2, "T": 4, "B": 4, "done": 0}
    found = read_capture(tmp_path / "results")
    assert found.traced is not None
    assert found.traced.named("aten::addmm").sum() >= 8
    assert found.steps is not None
    assert (len(found.steps), found.steps.found_by) == (4, "optimizer")
    assert not [path.name for path in (tmp_path / "results").iterdir() if "next" in path.name]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_heap_that_was_told_before_an_optimizers_first_step_is_said(tmp_path: Path) -> None:
    late = TRAINING.replace(
        "optimizer = torch.optim.SGD",
        "import time\nuntil = time.monotonic() + 2.5\nwhile time.monotonic() < until:\n"
        "    model(torch.randn(64, 64))\n"
        "optimizer = torch.optim.SGD",
        1,
    )
    ended, _ = profiled(tmp_path, late, "60", own_heap=True, warmup=1, steps=4, seconds=0.3)
    assert ended.exit_code == 0
    found = read_capture(tmp_path / "results")
    assert (found.by_time, found.heap_told) == (False, True)


@pytest.mark.timeout(120)
def test_a_profiler_of_the_programs_own_ends_ours_when_it_starts(tmp_path: Path) -> None:
    own = INFERENCE.replace(
        "    stamps = []\n",
        "    stamps = []\n"
        "    while not torch._C._autograd._profiler_enabled():\n"
        "        answer(torch.randn(64, 128))\n"
        "    with torch.profiler.profile() as mine:\n"
        "        for _ in range(50):\n"
        "            answer(torch.randn(64, 128))\n"
        "    print(sum(event.name == 'aten::softmax' for event in mine.events()))\n",
    )
    ended, messages = profiled(tmp_path, own, "1")
    assert ended.exit_code == 0
    assert (tmp_path / "out").read_text() == "50\nserved\n"
    (trouble,) = (m["text"] for m in messages if m["kind"] == "trouble")
    assert "profiler of its own" in trouble


@pytest.mark.timeout(120)
def test_a_program_that_ends_at_once_says_what_is_missing(tmp_path: Path) -> None:
    ended, _ = profiled(tmp_path, "import torch\nprint(torch.ones(2).sum().item())\n")
    assert ended.exit_code == 0
    found = read_capture(tmp_path / "results")
    assert (found.windows, found.traced) == ([], None)
    (one,) = found.missing
    assert one.what == "steps"
    assert one.remedy is not None
    assert "--seconds" in one.remedy


@pytest.mark.timeout(120)
def test_what_other_threads_and_forked_processes_do_is_not_seen_and_that_is_said(tmp_path: Path) -> None:
    elsewhere = INFERENCE.replace(
        "stamps = serve(time.monotonic() + float(sys.argv[1]))",
        "import os, threading\n"
        "if not (child := os.fork()):\n"
        "    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.1)\n"
        "    for _ in range(20):\n"
        "        model(torch.randn(4, 128)).sum().backward()\n"
        "        optimizer.step()\n"
        "    os._exit(5)\n"
        "thread = threading.Thread(target=serve, args=(time.monotonic() + float(sys.argv[1]),))\n"
        "thread.start()\n"
        "while thread.is_alive():\n"
        "    time.sleep(0.01)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5\n",
    )
    ended, messages = profiled(tmp_path, elsewhere, "2", seconds=0.2, warmup=0)
    assert (ended.exit_code, (tmp_path / "err").read_text()) == (0, "")
    assert all(m["by_time"] and not m["steps"] for m in messages if m["kind"] == "window")
    found = read_capture(tmp_path / "results")
    assert (found.traced, found.windows) == (None, [])
    assert "operators" in {one.what for one in found.missing}


COMPILED = """
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
x = torch.randn(16, 32)

def slow(graph, inputs):
    time.sleep(1.0)
    return graph.forward

def turn():
    compiled(x).sum().backward()

until = time.monotonic() + 0.75
while time.monotonic() < until:
    model(x)
compiled = torch.compile(model, backend=slow)
until = time.monotonic() + 20
while time.monotonic() < until:
    turn()
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_round_in_which_something_was_compiled_is_done_again(tmp_path: Path) -> None:
    ended, messages = profiled(tmp_path, COMPILED)
    assert ended.exit_code == 0
    assert (tmp_path / "out").read_text() == "1\n"
    assert not [m for m in messages if m["kind"] == "trouble"]
    rounds = [m for m in messages if m["kind"] == "window" and m["name"] == "B"]
    assert len(rounds) >= 2
    found = read_capture(tmp_path / "results")
    assert found.traced is not None
    assert not found.traced.named("_compile.compile_inner (dynamo_timed)").any()
    assert found.traced.named("aten::linear").sum() > 10


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_optimizer_that_is_made_in_a_window_is_waited_for(tmp_path: Path) -> None:
    late = TRAINING.replace(
        "optimizer = torch.optim.SGD",
        "import time\nuntil = time.monotonic() + 0.45\nwhile time.monotonic() < until:\n"
        "    model(torch.randn(64, 64))\n"
        "optimizer = torch.optim.SGD",
        1,
    ).replace(
        "for step in range(steps):",
        "until = time.monotonic() + 1.5\nwhile time.monotonic() < until:\n"
        "    model(torch.randn(64, 64))\nfor step in range(steps):",
        1,
    )
    ended, messages = profiled(tmp_path, late, "60", warmup=1, steps=4)
    assert ended.exit_code == 0
    # One untraced window may have begun, and nothing was recorded before the steps.
    assert [m["name"] for m in messages if m["kind"] == "window" and m["by_time"]] in ([], ["warm"])
    assert json.loads((tmp_path / "results" / "windows.json").read_text())["by"] == "steps"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_program_whose_optimizer_takes_no_step_is_captured_in_the_end(tmp_path: Path) -> None:
    unused = INFERENCE.replace(
        "stamps = serve(", "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nstamps = serve("
    )
    ended, _ = profiled(tmp_path, unused, "38")
    assert ended.exit_code == 0
    assert list(windows_of(tmp_path)) == ["warm", "A", "N", "L", "T", "B", "done"]


def requests(folder: Path, count: int, rounds: int = 40) -> Trace:
    """Requests of 40 rounds of one loop, and of one operator more that only begins them."""
    made = Maker()
    at = 0.0
    for _ in range(count):
        made.op("aten::embedding", at, 5)
        at += 10
        for _ in range(rounds):
            made.op("aten::linear", at, 5)
            made.op("aten::relu", at + 10, 5)
            at += 20
    return read_trace(made.write(folder / f"{count}-{rounds}.json"))


def test_steps_with_lines_are_those_of_the_traced_window_and_not_a_loop_inside_them(tmp_path: Path) -> None:
    traced = requests(tmp_path, 12)
    seen = Captured(traced=traced, steps=find_steps(traced), by_time=True)
    assert seen.steps is not None
    assert seen.steps.found_by == "repetition"
    long = int(np.median(seen.steps.end - seen.steps.begin))
    assert long == pytest.approx(810_000, abs=10_000)
    again = steps_beside(requests(tmp_path, 5), seen)
    assert len(again) in (4, 5)
    assert np.median(again.end - again.begin) == pytest.approx(long, rel=0.01)
    # A window that holds no whole request: its loop repeats 20 times, and is no step.
    part = requests(tmp_path, 1, rounds=20)
    short = steps_beside(part, seen)
    assert (len(find_steps(part)) > 10, len(short)) == (True, 1)
    assert short.end - short.begin == pytest.approx([long], rel=0.01)
