"""Modules of a program: which ran when, and what each took; and that nothing of it stays in the program."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.trace.kineto import Maker
from torch import nn
from torch._dynamo.utils import counters
from torch.profiler import ProfilerActivity, profile

from trackside.profiling.clock import fit, marker_spans
from trackside.profiling.markers import MARKER_PREFIX, ClockMarkers, Marker
from trackside.profiling.module_log import LEFT, ModuleLog
from trackside.profiling.module_times import ModuleCalls, module_calls
from trackside.trace.reader import read_trace


class Block(nn.Module):
    def __init__(self, width: int, times: int) -> None:
        super().__init__()
        self.first, self.second, self.times = nn.Linear(width, width), nn.Tanh(), times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.times):
            x = self.second(self.first(x))
        return x


class Model(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, 1), Block(width, 3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@contextmanager
def logged(**options: Any) -> Iterator[dict[str, Any]]:
    before = nn.Module.__call__
    log, told = ModuleLog(**options), {}
    log.start()
    try:
        yield told
    finally:
        told.update(log.stop())
    assert nn.Module.__call__ is before


def paths(told: dict[str, Any]) -> list[str | None]:
    return [None if n == LEFT else told["known"][n]["path"] for n in told["modules"]]


def test_calls_are_told_by_the_path_of_the_module_and_in_order() -> None:
    model, x = Model(), torch.ones(2, 8)
    with logged() as told:
        model(x)
    block = ["Model.blocks.1.first", None, "Model.blocks.1.second", None]
    assert paths(told) == [
        "Model",
        "Model.blocks.0",
        "Model.blocks.0.first",
        None,
        "Model.blocks.0.second",
        None,
        None,
        "Model.blocks.1",
        *(3 * block),
        None,
        None,
    ]
    assert told["times"] == sorted(told["times"])
    assert set(told["threads"]) == {threading.get_native_id()}
    assert told["known"][0]["type"] == "Model"
    assert not told["full"]


def test_a_model_has_the_name_that_the_program_has_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model, part = Model(), nn.Linear(8, 8)
    monkeypatch.setattr("__main__.student", model, raising=False)
    with logged() as told:
        # A part that is called for itself, before the model, is still a part of it.
        model.blocks[0](torch.ones(2, 8))
        model(torch.ones(2, 8))
        part(torch.ones(2, 8))
    assert paths(told)[0] == "student.blocks.0"
    assert "student.blocks.1.first" in paths(told)
    assert paths(told)[-2] == "Linear"


def test_a_module_that_fails_is_left_and_its_error_is_the_program_s() -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("mine")

    model = nn.Sequential(nn.Identity(), Fails())
    with logged() as told, pytest.raises(KeyError, match="mine"):
        model(torch.ones(1))
    assert paths(told) == ["Sequential", "Sequential.0", None, "Sequential.1", None, None]


def test_threads_have_calls_of_their_own() -> None:
    model, seen = Model(), []

    def work() -> None:
        seen.append(threading.get_native_id())
        model(torch.ones(2, 8))

    with logged() as told:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for native in set(seen):
        own = [p for p, thread in zip(paths(told), told["threads"], strict=True) if thread == native]
        assert own.count("Model") == own.count("Model.blocks.0") == seen.count(native)
        assert own.count(None) == len(own) / 2


def test_a_log_that_is_full_lets_calls_through_and_says_so() -> None:
    model = Model()
    with logged(most=4) as told:
        out = model(torch.ones(2, 8))
    assert torch.equal(out, model(torch.ones(2, 8)))
    assert told["full"]
    assert [p for p in paths(told) if p][:3] == ["Model", "Model.blocks.0", "Model.blocks.0.first"]
    assert len(told["modules"]) < 10


def test_what_another_put_in_our_place_meanwhile_stays() -> None:
    before = nn.Module.__call__
    log = ModuleLog()
    log.start()
    ours: Any = nn.Module.__call__

    def theirs(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return ours(module, *args, **kwargs)

    nn.Module.__call__ = theirs
    try:
        log.stop()
        assert nn.Module.__call__ is theirs
        assert Model()(torch.ones(2, 8)).shape == (2, 8)
    finally:
        nn.Module.__call__ = before


@pytest.fixture
def compiler() -> Iterator[Any]:
    before = nn.Module.__call__
    torch._dynamo.reset()
    yield counters["stats"]
    nn.Module.__call__ = before
    torch._dynamo.reset()


def test_compiled_code_is_not_compiled_again_because_of_the_log(compiler: Any) -> None:
    model, x = Model(), torch.ones(2, 8)
    compiled = torch.compile(model, backend="eager")
    out = compiled(x)
    graphs = compiler["unique_graphs"]
    with logged() as told:
        assert torch.equal(compiled(x), out)
    compiled(x)
    assert compiler["unique_graphs"] == graphs
    # What was compiled is one piece.
    assert [p for p in paths(told) if p] == ["OptimizedModule"]


def test_what_is_compiled_while_the_log_runs_stays_valid_after_it(compiler: Any) -> None:
    model, x = Model(), torch.ones(2, 8)
    log = ModuleLog()
    log.start()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    out = compiled(x)
    graphs = compiler["unique_graphs"]
    told = log.stop()
    assert torch.equal(compiled(x), out)
    assert compiler["unique_graphs"] == graphs
    assert [p for p in paths(told) if p] == ["OptimizedModule"]
    with logged() as again:
        assert torch.equal(compiled(x), out)
    assert torch.equal(compiled(x), out)
    assert compiler["unique_graphs"] == graphs
    assert [p for p in paths(again) if p] == ["OptimizedModule"]


# -- times -------------------------------------------------------------------------------------------


def timed(model: nn.Module, x: torch.Tensor, folder: Path, steps: int = 3) -> dict[str, ModuleCalls]:
    model(x).sum().backward()
    markers, log = ClockMarkers(), ModuleLog()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        markers.begin()
        log.start()
        for _ in range(steps):
            model(x).sum().backward()
        told = log.stop()
        markers.end()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    trace = read_trace(folder / "trace.json")
    clock = fit(markers.markers, marker_spans(trace))
    return {one.path: one for one in module_calls(told, trace, clock)}


def test_a_module_has_the_time_of_those_it_calls_and_derivatives_go_to_the_module_of_their_operator(
    tmp_path: Path,
) -> None:
    found = timed(Model(512), torch.randn(256, 512, requires_grad=True), tmp_path)
    one, three = found["Model.blocks.0.first"], found["Model.blocks.1.first"]
    assert (one.calls, three.calls, found["Model"].calls) == (3, 9, 3)
    assert found["Model"].device_ns == 0
    # Three products against one, forward and backward; by how much depends on what else runs.
    assert three.cpu_ns > one.cpu_ns > 0
    assert three.backward_ns > one.backward_ns > 0
    for parent, parts in (
        ("Model", ("Model.blocks.0", "Model.blocks.1")),
        ("Model.blocks.1", ("Model.blocks.1.first", "Model.blocks.1.second")),
    ):
        inner = sum(found[part].cpu_ns for part in parts)
        assert inner <= found[parent].cpu_ns < 1.2 * inner + 1e6
        assert found[parent].backward_ns == pytest.approx(sum(found[part].backward_ns for part in parts))


def test_a_module_that_calls_itself_has_its_time_once(tmp_path: Path) -> None:
    document = {
        "times": [0, 10, 20, 90, 100, 130],
        "threads": [1] * 6,
        "modules": [0, 1, 0, LEFT, LEFT, LEFT],
        "known": [{"path": "m", "type": "M"}, {"path": "m.part", "type": "P"}],
        "full": False,
    }
    made = Maker()
    made.op("aten::mm", 0.0, 1.0)
    trace = read_trace(made.write(tmp_path / "trace.json"))
    clock = fit([Marker(f"{MARKER_PREFIX}1/0", 0, 1, 2)], [(f"{MARKER_PREFIX}1/0", 0, 2)])
    found = {one.path: one for one in module_calls(document, trace, clock)}
    assert (found["m"].calls, found["m"].cpu_ns) == (2, 130)
    assert (found["m.part"].calls, found["m.part"].cpu_ns) == (1, 90)


def test_a_compiler_that_another_thread_imports_meanwhile_is_no_obstacle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", ModuleType("torch._dynamo.utils"))
    before = torch.nn.Module.__call__
    log = ModuleLog()
    log.start()
    log.stop()
    assert torch.nn.Module.__call__ is before
