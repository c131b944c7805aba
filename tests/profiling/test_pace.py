"""Traced steps as they would have been untraced: tracing slows a host by what nothing tells."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.trace.kineto import PROCESS, THREAD, Maker

from trackside.diagnose import diagnosis
from trackside.diagnose.evidence import Evidence, gather
from trackside.diagnose.rule import Draft, Rule
from trackside.profiling.captured import Captured
from trackside.profiling.pace import untraced
from trackside.profiling.record import step_in_view
from trackside.profiling.step_view import StepView
from trackside.records.profile import Finding, WindowTimes
from trackside.trace.model import Kind, Trace
from trackside.trace.reader import read_trace
from trackside.trace.steps import find_steps

OPERATORS, TRACED_US = 100, 20.0


def traced(folder: Path, kernel_us: float, untraced_ms: float) -> Evidence:
    """Steps of 100 operators that take the host 20 µs each while it is traced, and their kernels."""
    made, at, device = Maker(), 0.0, 0.0
    for step in range(6):
        made.mark(f"ProfilerStep#{step}", at, OPERATORS * TRACED_US)
        for _ in range(OPERATORS):
            for inner in range(6):
                made.op("aten::mm", at + 1 + inner, 18 - 2 * inner)
            device = max(device, at + 11)
            made.kernel("gemm", at + 8, device, kernel_us)
            device += kernel_us
            at += TRACED_US
    found = gather(
        Captured(
            windows=[WindowTimes(window="A", steps=50, step_ms=untraced_ms, spread=0.0, slowdown=None)],
            traced=read_trace(made.write(folder / "trace.json")),
        )
    )
    assert found is not None
    return found


def priced(evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> Finding:
    """What kernels that take no time would gain."""

    def look(seen: Evidence) -> Iterator[Draft]:
        kernels = seen.traced.tasks_of(seen.trace.of(Kind.KERNEL))
        edits = seen._scaled(kernels, 0.1)
        yield Draft("Kernels are slow", None, ["They are."], "Make them faster.", edits)

    monkeypatch.setattr(
        diagnosis, "all_rules", lambda: {"slow": Rule("slow", "kernel", look, None, "both", frozenset())}
    )
    (found,) = diagnosis.diagnose(evidence, least=-1.0).findings
    return found


def test_where_the_device_sets_the_pace_a_quicker_host_is_allowed_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = traced(tmp_path, kernel_us=15, untraced_ms=1.5)
    assert evidence.light is not None
    assert evidence.before_light is not None
    assert evidence.step_ns == pytest.approx(1.5e6, rel=0.02)
    assert evidence.before_light.step_ns == pytest.approx(1.5e6, rel=0.02)
    gain = priced(evidence, monkeypatch).gain
    # With the host that just keeps up nothing would be gained, with the quickest 19 %.
    assert gain.mid == pytest.approx(0.093, abs=0.01)
    assert gain.low < 0.06
    assert gain.high > 0.13


def test_where_the_host_sets_the_pace_it_is_as_quick_as_the_untraced_step_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = traced(tmp_path, kernel_us=5, untraced_ms=1.5)
    assert evidence.light is None
    assert evidence.step_ns == pytest.approx(1.5e6, rel=0.02)
    assert priced(evidence, monkeypatch).gain.mid == pytest.approx(0, abs=0.01)


def faulting(folder: Path, fill: str) -> Trace:
    """Steps of a product that takes 400 µs, and of four sums that take 20 µs and 100 µs to touch memory."""
    made, at = Maker(), 0.0
    for step in range(6):
        made.mark(f"ProfilerStep#{step}", at, 900)
        made.op("aten::mm", at, 400)
        for place in range(4):
            began = at + 400 + 120 * place
            made.op("aten::add", began, 120)
            if fill == "aten::copy_":
                made.op("aten::empty", began + 1, 2)
                made.op(fill, began + 4, 115)
            for size, when in ((400_000, 2), (-400_000, 119)):
                made.events.append(
                    {
                        "ph": "i",
                        "cat": "cpu_instant_event",
                        "name": "[memory]",
                        "pid": PROCESS,
                        "tid": THREAD,
                        "ts": began + when,
                        "s": "t",
                        "args": {"Addr": 7, "Bytes": size, "Total Allocated": 0, "Device Id": -1},
                    }
                )
        at += 900
    return read_trace(made.write(folder / "trace.json"))


def shares(view: StepView) -> dict[str, float]:
    """Of a step, by operator."""
    return {one.name: one.share for one in view.kernels(None, {})[0]}


def test_operators_are_shown_as_long_as_they_are_untraced_however_much_new_memory_tracing_brought(
    tmp_path: Path,
) -> None:
    trace = faulting(tmp_path, "aten::add")
    memory = trace.kind == Kind.MEMORY
    captured = Captured(
        windows=[WindowTimes(window="A", steps=50, step_ms=0.5, spread=0.0, slowdown=None)],
        traced=trace.where(~memory),
        allocated=trace.where(memory),
        steps=find_steps(trace),
    )
    _, view = step_in_view(captured)
    assert view is not None
    # Of the trace's 900 µs the sums have 480, of the step's 500 they have 80.
    assert shares(view)["aten::mm"] == pytest.approx(0.8, abs=0.01)
    assert shares(view)["aten::add"] == pytest.approx(0.16, abs=0.01)
    assert view.breakdown().compute == pytest.approx(0.48, abs=0.01)
    assert view.steps.end[-1] - view.steps.begin[0] == pytest.approx(6 * 500_000, rel=0.01)


def small_and_large(folder: Path) -> Trace:
    """Steps of a product of 400 µs, and of 100 operators that call two each: traced 5 µs, in truth 3."""
    made, at = Maker(), 0.0
    for step in range(6):
        made.mark(f"ProfilerStep#{step}", at, 1000)
        made.op("aten::mm", at, 400)
        for place in range(100):
            began = at + 401 + 5.98 * place
            made.op("aten::linear", began, 5)
            # Around each of those inside, a quarter of a microsecond on either side is tracing's.
            made.op("aten::t", began + 1, 1)
            made.op("aten::mm", began + 3, 1)
        at += 1000
    return read_trace(made.write(folder / "trace.json"))


def test_what_calls_many_is_longer_traced_and_what_calls_none_is_not(tmp_path: Path) -> None:
    trace = small_and_large(tmp_path)
    steps = find_steps(trace)
    # Each of 301 operators is traced for half a microsecond.
    moved, moved_steps = untraced(trace, steps, None, 849_500)
    assert moved_steps.end[-1] - moved_steps.begin[0] == pytest.approx(6 * 849_500, rel=0.002)
    long = moved.named("aten::mm") & (trace.duration > 100_000)
    assert moved.duration[long].tolist() == [400_000] * 6
    assert moved.duration[moved.named("aten::t")] == pytest.approx(1000, abs=2)
    assert moved.duration[moved.named("aten::linear")] == pytest.approx(4000, rel=0.02)
    # All in its order.
    assert (moved.start[1:] >= moved.start[:-1]).all()


def test_a_step_that_tracing_did_not_slow_down_stays_as_it_was(tmp_path: Path) -> None:
    trace = small_and_large(tmp_path)
    steps = find_steps(trace)
    assert untraced(trace, steps, None, 1_000_000) == (trace, steps)


@pytest.mark.parametrize("fill", ["aten::add", "aten::copy_"])
def test_what_touched_fresh_memory_only_while_it_was_traced_is_as_quick_as_it_was_before(
    tmp_path: Path, fill: str
) -> None:
    trace = faulting(tmp_path, fill)
    memory = trace.kind == Kind.MEMORY
    assert memory.sum() == 6 * 8
    found = gather(
        Captured(
            windows=[WindowTimes(window="A", steps=50, step_ms=0.5, spread=0.0, slowdown=None)],
            traced=trace.where(~memory),
            allocated=trace.where(memory),
        )
    )
    assert found is not None
    assert found.step_ns == pytest.approx(500_000, rel=0.01)
    assert found.cost(found.ops("aten::mm")) == pytest.approx(400_000, rel=0.01)
    assert found.cost(found.ops("aten::add")) == pytest.approx(80_000, rel=0.06)


def test_a_step_without_a_device_takes_what_it_took_untraced_however_slow_the_traced_one_was(
    tmp_path: Path,
) -> None:
    made = Maker()
    for step in range(6):
        made.mark(f"ProfilerStep#{step}", 1000 * step, 1000)
        made.op("aten::mm", 1000 * step, 600)
        made.op("aten::add", 1000 * step + 700, 200)
    found = gather(
        Captured(
            windows=[WindowTimes(window="A", steps=50, step_ms=0.25, spread=0.0, slowdown=None)],
            traced=read_trace(made.write(tmp_path / "trace.json")),
        )
    )
    assert found is not None
    assert found.step_ns == pytest.approx(250_000, rel=0.01)
    assert found.share(found.ops("aten::mm")) == pytest.approx(0.6, abs=0.01)


def test_what_held_up_one_step_is_no_part_of_what_tracing_costs(tmp_path: Path) -> None:
    made, at = Maker(), 0.0
    for step in range(8):
        made.mark(f"ProfilerStep#{step}", at, 500 + (40_000 if step == 3 else 0))
        made.op("aten::mm", at, 300)
        # The machine gave the thread's core to another.
        late = 40_000 if step == 3 else 0
        made.op("aten::add", at + 400 + late, 80)
        at += 500 + late
    trace = read_trace(made.write(tmp_path / "trace.json"))
    moved, steps = untraced(trace, find_steps(trace), None, 490_000)
    assert moved.duration[moved.named("aten::mm")] == pytest.approx(300_000, rel=0.03)
    assert steps.end[-1] - steps.begin[0] == pytest.approx(8 * 490_000, rel=0.02)
