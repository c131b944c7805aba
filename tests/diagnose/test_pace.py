"""How quick the host is beside a device that sets the pace: tracing slows it by what nothing tells."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.trace.kineto import Maker

from trackside.diagnose import diagnosis
from trackside.diagnose.evidence import Evidence, gather
from trackside.diagnose.rule import Draft, Rule
from trackside.profiling.captured import Captured
from trackside.records.profile import Finding, WindowTimes
from trackside.trace.model import Kind
from trackside.trace.reader import read_trace

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
