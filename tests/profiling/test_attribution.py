"""Time lands on the lines that spent it: against timers in the program itself."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.profiler import ProfilerActivity, profile

from trackside.profiling.attribution import Attribution, attribute
from trackside.profiling.clock import fit, marker_spans
from trackside.profiling.line_log import LineLog
from trackside.profiling.line_stacks import Line
from trackside.profiling.line_times import line_spans
from trackside.profiling.markers import ClockMarkers
from trackside.trace.model import Kind
from trackside.trace.reader import read_trace

TRAINING = """
import time, torch
from time import perf_counter_ns as now

spent = {}

def add(name, began):
    spent[name] = spent.get(name, 0) + now() - began

torch.manual_seed(1)
a = torch.randn(700, 700)
w = torch.randn(700, 700, requires_grad=True)
v = torch.randn(700, 700, requires_grad=True)
optimizer = torch.optim.Adam([w, v])

def helper(x):
    began = now()
    y = x @ v                                              # helper-product
    add("helper-product", began)
    began = now()
    y = torch.tanh(y)                                      # helper-tanh
    add("helper-tanh", began)
    return y

def step():
    began = now()
    x = a @ w                                              # product
    add("product", began)
    x = helper(x)
    for _ in range(3):
        began = now()
        x = torch.softmax(x, -1)                           # softmax
        add("softmax", began)
    began = now()
    twice = (lambda t: torch.exp(t) + torch.exp(-t))(x)    # two-on-one-line
    add("two-on-one-line", began)
    began = now()
    total = sum(i * i for i in range(60000))               # python
    add("python", began)
    loss = twice.sum()
    optimizer.zero_grad()
    began = now()
    loss.backward()                                        # backward
    add("backward", began)
    began = now()
    optimizer.step()                                       # optimizer
    add("optimizer", began)
"""


def line_of(source: str, mark: str) -> int:
    (found,) = [number for number, text in enumerate(source.split("\n"), 1) if text.endswith(f"# {mark}")]
    return found


def attributed(source: str, folder: Path, steps: int = 4) -> tuple[Attribution, dict[str, Any], str]:
    file = folder / "program.py"
    file.write_text(source)
    program: dict[str, Any] = {"__name__": "program"}
    exec(compile(source, str(file), "exec"), program)
    for _ in range(2):
        program["step"]()
    program["spent"].clear()
    log = LineLog(lambda name: name == str(file))
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        markers = ClockMarkers()
        markers.begin()
        log.start()
        for _ in range(steps):
            program["step"]()
            markers.tick()
        events = log.stop()
        markers.end()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    trace = read_trace(folder / "trace.json")
    found = attribute(trace, line_spans(events), fit(markers.markers, marker_spans(trace)))
    return found, program, str(file)


@pytest.mark.timeout(180)
def test_every_line_of_a_training_step_has_its_share_within_three_points(tmp_path: Path) -> None:
    found, program, file = attributed(TRAINING, tmp_path)
    spent: dict[str, int] = program["spent"]
    # Timers measure what the log adds to a line of Python's own; the log takes that off.
    compared = {name: ns for name, ns in spent.items() if name != "python"}
    times = {
        name: found.lines[Line(file, line_of(TRAINING, name))].cpu_ns
        for name in compared
        if name not in ("backward", "optimizer")
    }
    times["optimizer"] = found.cpu_ns["optimizer"]
    times["backward"] = found.cpu_ns["autograd"] + sum(one.backward_ns for one in found.lines.values())
    times["backward"] += found.lines[Line(file, line_of(TRAINING, "backward"))].cpu_ns
    expected, whole = sum(compared.values()), sum(times.values())
    apart = {name: abs(times[name] / whole - ns / expected) for name, ns in compared.items()}
    assert max(apart.values()) < 0.03, apart
    assert found.attributed_share > 0.95


@pytest.mark.timeout(120)
def test_a_derivative_belongs_to_the_line_of_its_operator(tmp_path: Path) -> None:
    found, _, file = attributed(TRAINING, tmp_path)

    def backward(mark: str) -> float:
        return found.lines[Line(file, line_of(TRAINING, mark))].backward_ns

    def derivatives(mark: str) -> int:
        """Products in the derivatives of a line's own."""
        rows = found.trace.of(Kind.OP)
        rows = rows[found.trace.named("aten::mm")[rows]]
        lines, are_derivatives = found.places(rows)
        wanted = found.known.index(Line(file, line_of(TRAINING, mark)))
        return int(((lines == wanted) & are_derivatives).sum())

    products = backward("product") + backward("helper-product")
    whole = sum(one.backward_ns for one in found.lines.values())
    assert (derivatives("product"), derivatives("helper-product")) == (4, 8)
    assert products > 0.4 * whole
    assert backward("softmax") > 0
    assert backward("two-on-one-line") > 0
    # Python has none, and what asked for the derivatives keeps little of them.
    assert backward("python") == 0
    assert found.lines[Line(file, line_of(TRAINING, "backward"))].cpu_ns < 0.3 * whole


def test_python_between_operators_is_the_line_s_that_ran_it(tmp_path: Path) -> None:
    found, _, file = attributed(TRAINING, tmp_path)
    python = found.lines[Line(file, line_of(TRAINING, "python"))].cpu_ns
    alone = []
    for _ in range(5):
        began = time.perf_counter_ns()
        sum(i * i for i in range(60000))
        alone.append(time.perf_counter_ns() - began)
    assert 0.3 * min(alone) < python / 4 < 4 * max(alone)


def test_a_line_has_the_share_that_it_has_in_steps_that_nothing_traces(tmp_path: Path) -> None:
    """What the trace says of a line's time, such as whose derivatives it waits for, is said of that share."""
    found, _, file = attributed(TRAINING, tmp_path)
    spans = found.spans
    product, backward = (Line(file, line_of(TRAINING, mark)) for mark in ("product", "backward"))
    # As if tracing made the product twice as long, and the line that asks for derivatives ten times.
    shorter = {product: 0.5, backward: 0.1}
    factors = [shorter.get(spans.stacks.line(stack), 1.0) for stack in range(len(spans.stacks))]
    alone = replace(spans, own_ns=spans.own_ns * factors)
    again = attribute(found.trace, spans, found.clock, alone=alone)

    def whole(one: Attribution) -> float:
        times = sum(time.cpu_ns + time.backward_ns for time in one.lines.values())
        return times + sum(one.cpu_ns.values()) - one.cpu_ns["unattributed"]

    def shares(one: Attribution) -> tuple[float, float, float]:
        derivatives = sum(time.backward_ns for time in one.lines.values())
        own = (
            one.lines[product].cpu_ns,
            derivatives,
            one.lines[Line(file, line_of(TRAINING, "softmax"))].cpu_ns,
        )
        return tuple(ns / whole(one) for ns in own)

    before, after = shares(found), shares(again)
    # The others share what these two lose.
    others = after[2] / before[2]
    assert others > 1.1
    assert after[0] == pytest.approx(0.5 * others * before[0], rel=0.02)
    assert after[1] == pytest.approx(0.1 * others * before[1], rel=0.02)
