"""What operators are called with, noted beside the profiler: as it has them, and at the right ones."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.trace.kineto import Maker
from torch.profiler import record_function

from trackside.profiling.inputs_log import INPUTS_FILE, InputsLog
from trackside.trace.execution_trace import Calls, read_calls, with_inputs
from trackside.trace.model import Kind, OpInputs, Trace
from trackside.trace.reader import read_trace
from trackside.trace.steps import Steps, find_steps
from trackside.trace.timeline import main_thread

FLAG = "aten::gelu"


class Net(torch.nn.Module):
    """Lists of tensors, flags, integers, text, half precision, a parameter's norm."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(100, 32)
        self.layer = torch.nn.Linear(32, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.image = torch.nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, ids: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        x = self.norm(torch.nn.functional.gelu(self.layer(self.table(ids)), approximate="tanh"))
        both = torch.cat([x, x.flip(0)], dim=1)
        q = x.unsqueeze(1)
        seen = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        narrow = x.to(torch.bfloat16) @ x.transpose(1, 2).to(torch.bfloat16)
        few = torch.topk(x, 3).values.sum() + x[ids > 50].sum() + torch.clamp(x, min=0.1).sum()
        return both.square().mean() + seen.mean() + narrow.float().mean() + few + self.image(image).sum()


def training() -> Callable[[], None]:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    ids, image = torch.randint(0, 100, (8, 16)), torch.randn(2, 3, 8, 8)

    def step() -> None:
        optimizer.zero_grad()
        with record_function('a "quoted" range'):
            loss = net(ids, image)
        loss.backward()
        optimizer.step()

    step()
    return step


def noted(folder: Path, step: Callable[[], object], steps: int = 2, known: int | None = 2) -> bool:
    log = InputsLog(str(folder))
    assert log.begin()
    for _ in range(steps):
        step()
    return log.end(known)


def traced(folder: Path, step: Callable[[], None], shapes: bool, steps: int = 4) -> tuple[Trace, Steps]:
    with torch.autograd.profiler.profile(use_kineto=True, record_shapes=shapes) as profiler:
        for _ in range(steps):
            step()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    trace = read_trace(folder / "trace.json")
    steps_found = find_steps(trace)
    assert steps_found.found_by == "optimizer"
    return trace, steps_found


def told(trace: Trace, steps: Steps) -> list[tuple[str, OpInputs | None]]:
    """Each operator of the steps with what it was called with."""
    rows = trace.of(Kind.OP)
    rows = rows[(trace.start[rows] >= steps.begin[0]) & (trace.start[rows] < steps.end[-1])]
    found = []
    for row in rows.tolist():
        number = int(trace.detail[row])
        given = trace.inputs[number] if number >= 0 else None
        # Floats may have other digits, and an optimizer has other ones in each step.
        values = tuple(_value(text) for text in given.values) if given is not None else ()
        found.append((trace.name_of(row), given._replace(values=values) if given is not None else None))
    return found


def _value(text: str) -> str:
    return "a float" if re.fullmatch(r"-?\d+\.\d*(e-?\d+)?|-?\d+e-?\d+", text) else text


def test_noted_inputs_are_those_that_the_profiler_records(tmp_path: Path) -> None:
    step = training()
    assert noted(tmp_path, step)
    calls = read_calls(tmp_path / INPUTS_FILE, 2)
    bare, steps = traced(tmp_path, step, shapes=False)
    assert not len(bare.inputs)
    filled = told(with_inputs(bare, steps, calls), steps)
    expected = told(*traced(tmp_path, step, shapes=True))
    # An operator without arguments has nothing to tell either way.
    without = {OpInputs((), (), ()): None}
    different = [
        (mine, theirs)
        for mine, theirs in zip(filled, expected, strict=True)
        if mine != (theirs[0], without.get(theirs[1], theirs[1]) if theirs[1] is not None else None)
    ]
    assert different == []
    assert sum(given is not None for _, given in filled) > 1000


def test_a_step_with_further_operators_has_inputs_where_there_is_no_doubt(tmp_path: Path) -> None:
    step = training()
    assert noted(tmp_path, step)
    turns = iter(range(10))

    def sometimes_more() -> None:
        step()
        if next(turns) == 2:
            torch.ones(5, 7) @ torch.ones(7, 3)

    trace, steps = traced(tmp_path, sometimes_more, shapes=False)
    filled = dict.fromkeys(name for name, _ in told(trace, steps))
    doubtful: dict[str, list[OpInputs | None]] = {name: [] for name in filled}
    for name, given in told(with_inputs(trace, steps, read_calls(tmp_path / INPUTS_FILE, 2)), steps):
        doubtful[name].append(given)
    assert all(given is not None and given.shapes[0] == (8, 16, 32) for given in doubtful[FLAG])
    # Further products, of which nothing was noted, and none of the model's has theirs.
    products = [given for given in doubtful["aten::mm"] if given is not None]
    assert len(products) < len(doubtful["aten::mm"])
    assert all(len(given.shapes) == 2 and given.shapes[0][1] == given.shapes[1][0] for given in products)


def test_steps_with_other_shapes_are_not_known(tmp_path: Path) -> None:
    lengths = iter([3, 4])
    assert not noted(tmp_path, lambda: torch.ones(next(lengths), 2).relu())
    assert not list(tmp_path.iterdir())


def test_without_steps_shapes_are_known_where_they_come_again_and_again(tmp_path: Path) -> None:
    assert noted(tmp_path, lambda: torch.ones(3, 2).relu(), steps=1, known=None) is False
    assert noted(tmp_path, lambda: [torch.ones(3, 2).relu() for _ in range(5)], steps=1, known=None)
    growing = lambda: [torch.ones(n, 2).relu() for n in range(50)]  # noqa: E731
    assert not noted(tmp_path, growing, steps=1, known=None)
    once_beside = lambda: [torch.ones(4, 2), *(torch.ones(3, 2).relu() for _ in range(100))]  # noqa: E731
    assert noted(tmp_path, once_beside, steps=1, known=None)


def test_turns_that_were_noted_by_the_clock_give_their_inputs_to_each_step(tmp_path: Path) -> None:
    """They begin and end in the middle of a turn."""
    step = training()
    log = InputsLog(str(tmp_path))
    torch.ones(9, 9).relu()
    assert log.begin()
    torch.ones(9, 9).relu()
    for _ in range(4):
        step()
    torch.ones(9, 9).relu()
    assert log.end(None)
    bare, steps = traced(tmp_path, step, shapes=False)
    filled = told(with_inputs(bare, steps, read_calls(tmp_path / INPUTS_FILE, 1), by_time=True), steps)
    expected = told(*traced(tmp_path, step, shapes=True))
    products = [(mine, theirs) for mine, theirs in zip(filled, expected, strict=True) if "mm" in mine[0]]
    assert len(products) > 10
    assert all(mine == theirs for mine, theirs in products)


@pytest.mark.parametrize(("part", "known"), [(1.1, 1.0), (0.8, 0.75)])
def test_turns_that_were_noted_from_the_middle_of_one_to_the_next_are_laid_around_a_step(
    tmp_path: Path, part: float, known: float
) -> None:
    step = training()
    bare, steps = traced(tmp_path, step, shapes=False)
    expected = told(*traced(tmp_path, step, shapes=True))
    turn = len(expected) // len(steps)
    seen = expected[turn // 3 : turn // 3 + int(part * turn) + 16]
    calls = Calls(tuple(name for name, _ in seen), tuple(given or OpInputs((), (), ()) for _, given in seen))
    filled = told(with_inputs(bare, steps, [calls], by_time=True), steps)
    both = list(zip(filled, expected, strict=True))
    assert [(mine, theirs) for mine, theirs in both if mine[1] is not None and mine != theirs] == []
    there = [mine[1] is not None for mine, theirs in both if theirs[1] is not None and theirs[1].types]
    assert sum(there) >= known * len(there)


def test_a_step_of_an_optimizer_is_not_laid_around_another(tmp_path: Path) -> None:
    """One operator more there leaves all others known, as they come."""
    maker = Maker()
    names = [f"aten::of{number}" for number in range(200)]
    for turn in range(2):
        for place, name in enumerate(names):
            maker.op(name, 1e4 * turn + 10 * place, 9)
    trace = read_trace(maker.write(tmp_path / "trace.json"))
    steps = Steps(np.array([0, 10_000_000]), np.array([10_000_000, 20_000_000]), "optimizer")
    one = OpInputs(((3, 2),), ("float",), ("",))
    calls = Calls((*names[:40], "aten::item", *names[40:]), (one,) * 201)
    filled = with_inputs(trace, steps, [calls])
    assert (filled.detail[trace.of(Kind.OP)] >= 0).all()


def test_a_part_of_turns_that_fits_in_several_places_is_laid_in_none(tmp_path: Path) -> None:
    def step() -> None:
        for _ in range(60):
            torch.ones(3, 2).relu()
        for n in range(60):
            torch.ones(n, 2).relu()

    with torch.autograd.profiler.profile(use_kineto=True) as profiler:
        for _ in range(3):
            step()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = read_trace(tmp_path / "trace.json")
    rows = trace.of(Kind.OP)
    turn = len(rows) // 3
    bounds = trace.start[rows[[0, turn, 2 * turn]]]
    steps = Steps(bounds, np.array([*bounds[1:], trace.end[rows[-1]] + 1]), "repetition")
    names = [trace.name_of(row) for row in rows[:turn].tolist()]
    # Of one shape where the step has many: whatever they are given would be as right in another place.
    given = [OpInputs(((3, 2),), ("float",), ("",)) if name == "aten::relu" else None for name in names]
    half = slice(0, int(0.6 * turn))
    calls = Calls(tuple(names[half]), tuple(one or OpInputs((), (), ()) for one in given[half]))
    filled = with_inputs(trace, steps, [calls], by_time=True)
    relus = [row for row in rows.tolist() if trace.name_of(row) == "aten::relu"]
    # One and the same for all of that name, as ever.
    assert {int(filled.detail[row]) for row in relus} == {int(filled.detail[relus[0]])}


def test_where_the_program_has_a_trace_of_its_own_it_is_left_alone(tmp_path: Path) -> None:
    own = torch.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "own.json"))
    own.start()
    log = InputsLog(str(tmp_path))
    assert not log.begin()
    torch.ones(3).relu()
    assert not log.end(2)
    own.stop()
    own.unregister_callback()
    assert "aten::relu" in (tmp_path / "own.json").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["own.json"]


def test_a_trace_that_the_program_begins_meanwhile_comes_first(tmp_path: Path) -> None:
    log = InputsLog(str(tmp_path))
    assert log.begin()
    torch.ones(3).sin()
    own = torch.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "own.json"))
    own.start()
    torch.ones(3).relu()
    own.stop()
    own.unregister_callback()
    assert not log.end(2)
    text = (tmp_path / "own.json").read_text()
    assert "aten::relu" in text
    assert "aten::sin" not in text
    assert [path.name for path in tmp_path.iterdir()] == ["own.json"]


def test_a_range_that_is_open_at_the_end_does_no_harm_and_nothing_is_said(tmp_path: Path) -> None:
    program = f"""
import sys, torch
from trackside.profiling.inputs_log import InputsLog
epoch = torch.profiler.record_function("epoch")
log = InputsLog({str(tmp_path)!r})
assert log.begin()
for _ in range(2):
    torch.ones(3).relu()
epoch.__enter__()
assert log.end(2)
with torch.autograd.profiler.profile(use_kineto=True):
    epoch.__exit__(None, None, None)
    torch.ones(3).relu()
"""
    quiet = os.environ | {"KINETO_LOG_LEVEL": "99"}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=quiet)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "Execution Trace" not in ended.stderr


def test_a_process_that_is_forked_meanwhile_writes_nothing(tmp_path: Path) -> None:
    log = InputsLog(str(tmp_path))
    assert log.begin()
    torch.ones(3).relu()
    child = os.fork()
    if not child:
        for _ in range(2000):
            torch.ones(3).sin()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    torch.ones(3).relu()
    assert log.end(2)
    assert "aten::sin" not in (tmp_path / INPUTS_FILE).read_text()


def test_what_is_dropped_leaves_nothing(tmp_path: Path) -> None:
    log = InputsLog(str(tmp_path))
    assert log.begin()
    torch.ones(3).relu()
    log.drop()
    assert not log.end(2)
    assert not list(tmp_path.iterdir())
    again = InputsLog(str(tmp_path))
    assert again.begin()
    again.drop()


@pytest.mark.parametrize("damage", ["cut", "mangled", "empty"])
def test_a_damaged_file_gives_fewer_inputs_and_no_error(tmp_path: Path, damage: str) -> None:
    step = training()
    assert noted(tmp_path, step)
    path = tmp_path / INPUTS_FILE
    text = path.read_text()
    if damage == "mangled":
        path.write_text(text.replace('"shapes": [[8, 16, 32]', '"shapes": [[8, 16,'))
    else:
        path.write_text(text[: len(text) // 2 if damage == "cut" else 0])
    trace, steps = traced(tmp_path, step, shapes=False)
    filled = told(with_inputs(trace, steps, read_calls(path, 2)), steps)
    known = [given for _, given in filled if given is not None]
    assert len(known) < len(filled)
    assert all(len(given.shapes) == len(given.types) for given in known)


def test_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trackside.profiling.inputs_log._MOST_BYTES", 100_000)
    log = InputsLog(str(tmp_path))
    assert log.begin()
    assert not log.is_too_large()
    for _ in range(500):
        torch.ones(3).relu()
    assert log.is_too_large()
    log.drop()


def test_names_of_the_file_are_what_the_trace_calls_them(tmp_path: Path) -> None:
    """Both are torch's; a release that names them otherwise would leave every operator without inputs."""
    step = training()
    assert noted(tmp_path, step)
    calls = max(read_calls(tmp_path / INPUTS_FILE, 2), key=lambda one: len(one.names))
    trace, steps = traced(tmp_path, step, shapes=False)
    rows = trace.of(Kind.OP)
    rows = rows[trace.lane[rows] == main_thread(trace)]
    first = rows[(trace.start[rows] >= steps.begin[0]) & (trace.start[rows] < steps.end[0])]
    assert np.array_equal(np.array(calls.names), np.array([trace.name_of(row) for row in first.tolist()]))
    assert json.dumps(calls.names).count("evaluate_function") > 10
