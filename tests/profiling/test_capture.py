"""Whole programs, launched with the capture inside: what it leaves, and that the program does not notice."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from trackside.profiling.capture import is_users
from trackside.profiling.captured import Captured, read_capture
from trackside.profiling.heap import KEEPING
from trackside.profiling.inputs_log import INPUTS_FILE
from trackside.profiling.launch import Ended, launch
from trackside.profiling.program import Program
from trackside.trace.model import Kind, Trace
from trackside.trace.reader import read_trace

TRAINING = """
import sys, torch
steps = int(sys.argv[1])
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(steps):
    x = torch.randn(64, 64)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.6f}")
if len(sys.argv) > 2:
    raise SystemExit(int(sys.argv[2]))
"""


def profiled(
    folder: Path, source: str, *arguments: str, own_heap: bool = False, **asked: Any
) -> tuple[Ended, list[dict[str, Any]]]:
    """A program with the capture around it.

    Args:
        own_heap: let its heap give back what it likes, which is luck; else it keeps memory from the start.
    """
    script, results = folder / "train.py", folder / "results"
    script.write_text(source)
    results.mkdir()
    messages: list[dict[str, Any]] = []
    with (
        (folder / "out").open("wb") as out,
        (folder / "err").open("wb") as err,
        _as_stderr(err.fileno()),
        nullcontext() if own_heap else keeping_memory(),
    ):
        ended = launch(
            Program(str(script), arguments=arguments),
            "trackside.profiling.capture:around",
            asked,
            results,
            on_message=messages.append,
            stdout=out.fileno(),
        )
    return ended, messages


@contextmanager
def keeping_memory() -> Iterator[None]:
    """For programs that are started inside."""
    settings = dict(one.split("=") for one in KEEPING.split())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield


@contextmanager
def _as_stderr(descriptor: int) -> Iterator[None]:
    """The program inherits ours."""
    before = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def windows_of(folder: Path) -> dict[str, dict[str, Any]]:
    document = json.loads((folder / "results" / "windows.json").read_text())
    assert document["trouble"] == []
    return {window["stage"]: window for window in document["windows"]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended, list[dict[str, Any]]]:
    """One run of many steps, for all who look at what it left."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, *profiled(folder, TRAINING, "300")


@pytest.mark.timeout(120)
def test_a_training_run_goes_through_all_windows_and_says_what_it_would_have_said(
    trained: tuple[Path, Ended, list[dict[str, Any]]],
) -> None:
    tmp_path, ended, messages = trained
    assert (ended.exit_code, ended.signal, ended.trouble) == (0, None, None)
    plain = subprocess.run(
        [sys.executable, str(tmp_path / "train.py"), "300"], capture_output=True, check=True, timeout=100
    )
    assert (tmp_path / "out").read_bytes() == plain.stdout
    assert (tmp_path / "err").read_bytes() == plain.stderr
    windows = windows_of(tmp_path)
    assert list(windows) == ["warm", "A", "L", "T", "B", "done"]
    assert len(windows["A"]["ends_ns"]) >= 3
    assert windows["T"]["closed_ns"] <= windows["B"]["began_ns"]
    by_steps = [m for m in messages if m["kind"] == "window" and not m["by_time"]]
    assert [m["name"] for m in by_steps] == ["warm", "A", "L", "T", "B"]

    results = tmp_path / "results"
    trace = read_trace(results / "trace.json")
    steps = len(windows["T"]["ends_ns"]) + len(windows["B"]["ends_ns"])
    assert trace.named("aten::relu").sum() == steps
    assert len(trace.of(Kind.OP)) > 10 * steps
    lines = json.loads((results / "lines.json").read_text())
    assert {Path(place["file"]).name for place in lines["places"]} == {"train.py"}
    assert len(lines["markers"]) >= 16
    assert not list(results.glob("*.part"))


@pytest.mark.timeout(120)
def test_operators_have_inputs_that_were_noted_while_it_warmed_up_and_not_traced(
    trained: tuple[Path, Ended, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Tracing them breaks up the program's memory."""
    results = trained[0] / "results"
    assert (results / INPUTS_FILE).exists()
    assert not read_trace(results / "trace.json").inputs
    noted = _products(read_capture(results).traced)

    profiled(tmp_path, TRAINING, "300", warmup=2, steps=4)
    assert not (tmp_path / "results" / INPUTS_FILE).exists()
    traced = _products(read_capture(tmp_path / "results").traced)
    assert noted == traced == {((256,), (64, 64), (64, 256), (), ()), ((8,), (64, 256), (256, 8), (), ())}


def _products(trace: Trace | None) -> set[tuple[tuple[int, ...], ...]]:
    assert trace is not None
    numbers = trace.detail[trace.named("aten::addmm") & (trace.kind == Kind.OP)]
    assert (numbers >= 0).all()
    return {trace.inputs[number].shapes for number in numbers.tolist()}


@pytest.mark.timeout(120)
def test_exit_codes_and_early_ends_keep_what_was_seen(tmp_path: Path) -> None:
    ended, _ = profiled(tmp_path, TRAINING, "6", "7", warmup=1, steps=2)
    assert ended.exit_code == 7
    windows = windows_of(tmp_path)
    assert {name: len(window["ends_ns"]) for name, window in windows.items()} == {
        **{"warm": 1, "A": 2, "L": 1, "T": 2, "B": 0, "done": 0},
    }
    assert [window["cut"] for window in windows.values()] == [False, False, False, False, True, False]
    found = read_capture(tmp_path / "results")
    assert found.steps is not None
    assert len(found.steps) == 2
    # What ran behind the last step is no step's.
    assert found.attribution is None


@pytest.mark.timeout(120)
def test_what_a_program_does_behind_its_last_step_has_no_share_in_it(tmp_path: Path) -> None:
    source = TRAINING.replace('print(f"loss', 'for _ in range(200):\n    x @ x\nprint(f"loss')
    profiled(tmp_path, source, "11", warmup=1, steps=3)
    windows = windows_of(tmp_path)
    assert (len(windows["B"]["ends_ns"]), windows["B"]["cut"]) == (2, True)
    found = read_capture(tmp_path / "results")
    assert found.attribution is not None
    tail = source.split("\n").index("    x @ x") + 1
    assert tail not in {line.line for line, time in found.attribution.lines.items() if time.cpu_ns > 0}
    assert found.window("B") is not None


def test_a_program_without_torch_is_only_run(tmp_path: Path) -> None:
    ended, messages = profiled(tmp_path, "import json\nprint(json.dumps([1]))\n")
    assert (ended.exit_code, ended.trouble) == (0, None)
    assert (tmp_path / "out").read_text() == "[1]\n"
    assert windows_of(tmp_path) == {}
    assert [m for m in messages if m["kind"] == "window"] == []


@pytest.mark.timeout(120)
def test_a_program_with_a_profiler_of_its_own_keeps_it(tmp_path: Path) -> None:
    source = TRAINING.replace(
        "for step in range(steps):",
        "from torch.profiler import profile, ProfilerActivity\n"
        "mine = profile(activities=[ProfilerActivity.CPU])\nmine.start()\nfor step in range(steps):",
    ).replace('print(f"loss', 'mine.stop(); print(len(mine.events()) > 100)\nprint(f"loss')
    ended, _ = profiled(tmp_path, source, "30", warmup=1, steps=2)
    assert ended.exit_code == 0
    assert (tmp_path / "out").read_text().startswith("True\n")
    trouble = json.loads((tmp_path / "results" / "windows.json").read_text())["trouble"]
    assert len(trouble) == 1
    assert "profiler" in trouble[0].lower()


@pytest.mark.timeout(120)
def test_a_folder_that_vanishes_ends_the_capture_and_leaves_nothing_running_in_the_program(
    tmp_path: Path,
) -> None:
    source = TRAINING.replace(
        "for step in range(steps):",
        "import os, shutil\nwhere = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'results')\n"
        "for step in range(steps):\n"
        "    if torch._C._autograd._profiler_enabled():\n"
        "        shutil.rmtree(where, ignore_errors=True)",
    ).replace('print(f"loss', 'print(torch._C._autograd._profiler_enabled(), sys.gettrace())\nprint(f"loss')
    ended, messages = profiled(tmp_path, source, "40", "7", warmup=1, steps=2)
    assert ended.exit_code == 7
    assert (tmp_path / "out").read_text().startswith("False None\nloss ")
    assert "Traceback" not in (tmp_path / "err").read_text()
    trouble = [one for one in messages if one["kind"] == "trouble"]
    assert trouble
    assert "results" in trouble[0]["text"]


# Steps so long that one which is held up is no other's share.
LONGER = (
    TRAINING.replace("(64, 256)", "(512, 2048)")
    .replace("(256, 8)", "(2048, 8)")
    .replace("torch.randn(64, 64)", "torch.randn(256, 512)")
)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("source", "count", "asked"),
    [
        pytest.param(LONGER, "40", {"warmup": 3, "steps": 8}, id="long-steps"),
        # Beside other work these are off: they want a quiet machine.
        pytest.param(TRAINING, "300", {}, id="short-steps", marks=pytest.mark.slow),
    ],
)
def test_what_a_capture_left_is_read_as_step_times_a_trace_and_time_by_line(
    tmp_path: Path, source: str, count: str, asked: dict[str, int]
) -> None:
    profiled(tmp_path, source, count, **asked)
    found = read_capture(tmp_path / "results")
    assert found.missing == []
    assert [one.window for one in found.windows] == ["A", "L", "T", "B"]
    first = found.window("A")
    assert first is not None
    assert first.slowdown is None
    for one in found.windows[1:]:
        assert one.slowdown == pytest.approx(one.step_ms / first.step_ms)
    assert 0.05 < first.step_ms < 500
    assert found.traced is not None
    # All that takes long is there: the model's line with its derivatives, and the optimizer.
    model, rest = _model_and_rest(found)
    assert model > rest


def _model_and_rest(found: Captured) -> tuple[float, float]:
    """The time of the model's line with its derivatives and of the optimizer, and that of all other lines."""
    assert found.attribution is not None
    lines = {
        line.line: times for line, times in found.attribution.lines.items() if line.file.endswith("train.py")
    }
    model = lines[TRAINING.split("\n").index("    loss = model(x).square().mean()") + 1]
    assert model.cpu_ns > 0
    assert model.backward_ns > 0
    assert found.attribution.attributed_share > 0.95
    rest = sum(one.cpu_ns for one in lines.values() if one is not model)
    return model.cpu_ns + model.backward_ns + found.attribution.cpu_ns["optimizer"], rest


def test_a_folder_in_which_parts_are_missing_or_damaged_says_which(tmp_path: Path) -> None:
    assert read_capture(tmp_path).windows == []
    window = {"began_ns": 0, "ends_ns": [], "closed_ns": None}
    windows = [{"stage": "warm", **window, "ends_ns": [5_000_000]}, {"stage": "A", **window}]
    (tmp_path / "windows.json").write_text(json.dumps({"windows": windows, "trouble": ["E: x"]}))
    (tmp_path / "trace.json").write_text("no trace")
    (tmp_path / "lines.json").write_text("{")
    found = read_capture(tmp_path)
    assert (found.windows, found.traced, found.attribution) == ([], None, None)
    told = {one.what: one.effect for one in found.missing}
    assert told["part of the capture"] == "it ended early: E: x"
    assert "does not begin like JSON" in told["trace.json"]
    assert "cannot be read" in told["lines.json"]
    assert "before enough steps" in told["true step times"]


@pytest.mark.parametrize(
    ("steps", "remedy"),
    [
        (9, "let it run more steps, or ask for fewer: --warmup 1 --steps 2"),
        (6, "let it run more steps, or ask for fewer: --warmup 1 --steps 1"),
        (2, "let it run 5 steps or more, with --warmup 1 --steps 1"),
    ],
)
def test_a_program_of_few_steps_is_told_how_many_are_enough(tmp_path: Path, steps: int, remedy: str) -> None:
    window = {"began_ns": 0, "ends_ns": [10**6 * (one + 1) for one in range(steps)], "closed_ns": None}
    (tmp_path / "windows.json").write_text(
        json.dumps({"by": "steps", "windows": [{"stage": "warm", **window}]})
    )
    (told,) = read_capture(tmp_path).missing
    assert f"after {steps} steps" in told.effect
    assert told.remedy == remedy


def test_a_program_that_ended_before_it_was_traced_by_the_clock_is_told_how_to_be(tmp_path: Path) -> None:
    window = {"began_ns": 0, "ends_ns": [], "closed_ns": 3 * 10**8, "progress": []}
    windows = [{"stage": stage, **window} for stage in ("warm", "A")]
    (tmp_path / "windows.json").write_text(json.dumps({"by": "time", "windows": windows}))
    (told,) = read_capture(tmp_path).missing
    assert "--seconds 0.1 --warmup 0" in (told.remedy or "")


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/home/me/train.py", True),
        ("/home/me/ab/cab.py", True),
        ("/home/me/cache/pk/cpkvqph5odumda75rc6mb6nxboqudmj5fltotp4qsdjfkzh56i72.py", False),
        ("/home/me/cache/ab/cpkvqph5odumda75rc6mb6nxboqudmj5fltotp4qsdjfkzh56i72.py", True),
        ("/tmp/torchinductor_me/xy/cxy.py", False),
        (torch.__file__, False),
        (json.__file__, False),
    ],
)
def test_what_a_compiler_wrote_is_not_the_program_s_own_wherever_its_cache_lies(file: str, own: bool) -> None:
    assert is_users()(file) is own
