"""The record of a run, from captures whose content is known."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.profiling.test_step_view import on_the_host, viewed

from trackside.profiling.attribution import BUCKETS, Attribution, LineTime
from trackside.profiling.captured import Captured
from trackside.profiling.existing_trace import seen_trace
from trackside.profiling.line_stacks import Line
from trackside.profiling.record import RunFacts, build_record, shown_path
from trackside.profiling.sources import Sources
from trackside.records.errors import TracksideError
from trackside.records.profile import Finding, Gain, ProfileRecord, ProgramEnd, WindowTimes

MS = 1e6


def run_in(folder: Path) -> RunFacts:
    return RunFacts(
        command=["python", "train.py"],
        program=ProgramEnd(exit_code=0, signal=None, seconds=3.0),
        started="2026-11-16T10:00:00+00:00",
        started_s=1000.0,
        seconds=3.5,
        folder=str(folder),
        torch="2.13.0",
    )


def attributed(folder: Path, device: bool = False) -> Attribution:
    """Two steps: 6 ms in line 3 (2 of them backward), 2 ms in a helper elsewhere, 2 ms of the optimizer."""
    mine, helper = Line(str(folder / "train.py"), 3), Line("/elsewhere/helper.py", 1)
    lines = {
        mine: LineTime("main", cpu_ns=4 * MS, backward_ns=2 * MS, device_ns=3 * MS if device else 0.0),
        helper: LineTime("help", cpu_ns=2 * MS),
    }
    buckets = dict.fromkeys(BUCKETS, 0.0)
    # The joined logs are for rules; nothing here looks at them.
    unseen: Any = None
    return Attribution(
        lines=lines,
        device_ns=dict.fromkeys(BUCKETS, 0.0) | ({"optimizer": 5 * MS} if device else {}),
        cpu_ns=buckets | {"optimizer": 2 * MS},
        total_device_ns=10 * MS if device else 0.0,
        row_line=np.empty(0, np.int64),
        known=[],
        trace=unseen,
        spans=unseen,
        clock=unseen,
        places=unseen,
        callers={"aten::mm": [mine]},
    )


def captured_in(folder: Path, **more: object) -> Captured:
    view = viewed(on_the_host(folder), 1.0)
    source = Sources(
        {str(folder / "train.py"): ["import torch", "", "y = x @ w"]}, {str(folder / "train.py"): 1.0}
    )
    found = Captured(
        windows=[
            WindowTimes(window="A", steps=9, step_ms=0.5, spread=0.1, slowdown=None),
            WindowTimes(window="T", steps=4, step_ms=1.0, spread=0.1, slowdown=2.0),
            WindowTimes(window="B", steps=2, step_ms=5.0, spread=0.1, slowdown=10.0),
        ],
        traced=view.trace,
        steps=view.steps,
        attribution=attributed(folder),
        attributed_ns=int(10 * MS),
        line_runs={Line(str(folder / "train.py"), 3): 24},
        sources=source,
    )
    return replace(found, **more)


def built(folder: Path, **more: object) -> ProfileRecord:
    return build_record(captured_in(folder, **more), run_in(folder))


def test_lines_are_shares_of_the_logged_window_rescaled_to_the_true_step(tmp_path: Path) -> None:
    record = built(tmp_path)
    assert record.step_ms == 0.5
    first, second = record.lines
    assert (first.file, first.line, first.text, first.function) == ("train.py", 3, "y = x @ w", "main")
    assert first.cpu_ms == pytest.approx(0.2)
    assert first.backward_ms == pytest.approx(0.1)
    assert first.share == pytest.approx(0.6)
    assert first.calls == 12
    assert (second.file, second.text) == ("/elsewhere/helper.py", "")
    (bucket,) = record.buckets
    assert (bucket.name, bucket.share) == ("optimizer", pytest.approx(0.2))
    assert record.kernels[0].lines == ["train.py:3"]
    assert record.sources == {"train.py": ["import torch", "", "y = x @ w"]}


def test_lines_of_threads_side_by_side_are_held_against_the_window(tmp_path: Path) -> None:
    record = built(tmp_path, attributed_ns=int(5 * MS))
    assert record.lines[0].share == pytest.approx(1.2)


def test_a_devices_time_is_not_rescaled(tmp_path: Path) -> None:
    record = built(tmp_path, attribution=attributed(tmp_path, device=True))
    first = record.lines[0]
    assert (first.device_ms, first.backward_ms) == (pytest.approx(1.5), pytest.approx(1.0))
    assert first.share == pytest.approx(0.5)
    assert record.buckets[0].device_ms == pytest.approx(2.5)
    assert record.buckets[0].share == pytest.approx(0.5)


@pytest.mark.parametrize(
    "title",
    [
        "The product is made of many small ones",
        "A matrix is inverted only to be multiplied",
        "Adam updates its 12 tensors one by one",
        "Python's sum() walks over a tensor element by element",
        "DataLoader workers are started again for every epoch",
        "TF32 is off",
        "GELU is written out in single operators",
    ],
)
def test_the_sentence_says_what_the_step_is_spent_on_and_where(tmp_path: Path, title: str) -> None:
    record = built(tmp_path)
    assert record.verdict == "A step takes 500 µs, 60% of it computing; train.py:3 takes 60%."
    finding = Finding(
        id="x",
        title=title,
        file=str(tmp_path / "train.py"),
        line=3,
        gain=Gain(low=0.2, mid=0.3, high=0.4),
        confidence="high",
        evidence=[],
        fix="one product",
    )
    told = build_record(captured_in(tmp_path), run_in(tmp_path), [finding], finding.gain)
    assert told.findings[0].file == "train.py"
    (product,) = (one.id for one in told.kernels if one.lines)
    assert told.findings[0].kernels == [product]
    assert told.together == finding.gain
    assert told.verdict.endswith(f"First: {title} (train.py:3); a change saves about 30% of the step.")


def test_steps_that_tracing_made_longer_are_said_to_be_rescaled(tmp_path: Path) -> None:
    (one,) = (row for row in built(tmp_path).trust if "tracing made" in row.what)
    assert "2.00 times" in one.what
    assert "10.00 times" in one.what
    calm = [
        WindowTimes(window="A", steps=9, step_ms=0.5, spread=0.1, slowdown=None),
        WindowTimes(window="T", steps=4, step_ms=0.52, spread=0.1, slowdown=1.04),
    ]
    assert not any("tracing made" in row.what for row in built(tmp_path, windows=calm).trust)


def test_what_was_not_reached_is_said_with_the_remedy(tmp_path: Path) -> None:
    without_lines = built(tmp_path, attribution=None)
    assert without_lines.lines == []
    assert [row.remedy for row in without_lines.trust if row.what == "lines"] == [
        "let it run longer, or fewer steps: --steps 2"
    ]
    timed_only = built(tmp_path, attribution=None, traced=None, steps=None)
    assert timed_only.verdict == "A step takes 500 µs."
    assert timed_only.breakdown_ms is None
    assert any(row.what == "the trace" for row in timed_only.trust)
    nothing = build_record(Captured(), replace(run_in(tmp_path), torch=None))
    assert nothing.step_ms is None
    assert nothing.verdict.startswith("The program did not import torch")


def test_a_file_that_changed_while_the_program_ran_is_named(tmp_path: Path) -> None:
    file = str(tmp_path / "train.py")
    changed = built(tmp_path, sources=Sources({file: ["", "", "y"]}, {file: 2000.0}))
    assert any("train.py was changed while the program ran" in row.what for row in changed.trust)
    broken = built(tmp_path, sources=Sources(why_not={file: "it is not text"}))
    assert any(row.what == "the source of train.py" and "not text" in row.effect for row in broken.trust)


def test_an_existing_trace_gives_all_but_true_times_and_lines(tmp_path: Path) -> None:
    on_the_host(tmp_path)
    captured, run = seen_trace(tmp_path / "host.json", "p-1")
    record = build_record(captured, run)
    assert record.run_id == "p-1"
    assert record.breakdown_ms is not None
    assert record.kernels[0].name == "aten::mm"
    assert {row.what for row in record.trust} >= {"lines", "true step times"}
    for text, why in (("hello", "is no trace"), ('{"traceEvents": []}', "no event")):
        (tmp_path / "no.json").write_text(text)
        with pytest.raises(TracksideError, match=why):
            seen_trace(tmp_path / "no.json")


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/home/me/work/model.py", "model.py"),
        ("/home/me/work/../lib/model.py", "../lib/model.py"),
        ("/usr/lib/model.py", "/usr/lib/model.py"),
        ("<ipython-input-3>", "<ipython-input-3>"),
    ],
)
def test_files_are_named_from_where_the_program_was_started(file: str, shown: str) -> None:
    assert shown_path("/home/me/work")(file) == shown


def test_a_heap_that_was_told_before_the_untraced_steps_is_said(tmp_path: Path) -> None:
    (told,) = (one for one in built(tmp_path, heap_told=True).trust if "heap" in one.what)
    assert told.effect.endswith("unwatched, a step may also take new memory, and longer")
    assert not any("heap" in one.what for one in built(tmp_path).trust)


def test_new_memory_in_every_step_is_said_with_what_a_step_takes_without(tmp_path: Path) -> None:
    windows = [
        WindowTimes(window="A", steps=9, step_ms=2.0, spread=0.1, slowdown=None),
        WindowTimes(window="K", steps=4, step_ms=1.25, spread=0.1, slowdown=0.625),
    ]
    (told,) = (
        one
        for one in built(tmp_path, windows=windows, faults=2054.4, kept=True).trust
        if "page faults" in one.what
    )
    assert told.what == "new memory in every step: 2,054 page faults"
    assert told.effect.endswith("; 1.25 ms in 4 steps in which the heap kept memory")
    assert "MALLOC_TRIM_THRESHOLD_=1073741824" in (told.remedy or "")
    untold = built(tmp_path, windows=windows, faults=0.0, kept=True).trust
    assert not any("page faults" in one.what for one in untold)
