"""Memory of whole programs: the line that holds it, what grows, what has a name, and that nobody notices."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from tests.profiling.test_capture import profiled
from torch.overrides import TorchFunctionMode

from trackside.profiling.captured import Captured, read_capture
from trackside.profiling.memory_log import held_tensors
from trackside.profiling.memory_use import BEFORE, MemoryUse, Owner
from trackside.profiling.torch_messages import TorchMessages

MB = 1_000_000

TRAINING = """
import torch

torch.set_num_threads(1)
model = torch.nn.Linear(1000, 500)                               # 2 MB
optimizer = torch.optim.Adam(model.parameters(), foreach=False)  # 4 MB of state
x = torch.randn(40, 1000)
kept = []

def activations(batch):
    hidden = model(batch)
    grown = hidden.repeat(250, 1)                                # 10 000 × 500 floats: 20 MB
    wide = torch.exp(grown)                                      # and again, held for backward
    return wide.mean()

for step in range(60):
    optimizer.zero_grad()
    loss = activations(x)
    scratch = torch.empty(5_000_000)                             # 20 MB, while backward runs
    loss.backward()
    del scratch
    optimizer.step()
    KEEP
"""


def seen(folder: Path, source: str, **asked: object) -> tuple[Captured, str]:
    ended, _ = profiled(folder, dedent(source), **({"warmup": 2, "steps": 4} | asked))
    assert ended.exit_code == 0, (folder / "err").read_text()
    return read_capture(folder / "results"), (folder / "err").read_text()


def of_host(captured: Captured) -> MemoryUse:
    (found,) = captured.memory
    assert found.device == "cpu"
    return found


def at(source: str, mark: str) -> int:
    (found,) = [number for number, text in enumerate(source.split("\n"), 1) if mark in text]
    return found


def by_line(use: MemoryUse) -> dict[int, int]:
    found: dict[int, int] = {}
    for owner, size in use.owners.items():
        if owner.line is not None:
            found[owner.line.line] = found.get(owner.line.line, 0) + size
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Captured, str]:
    return seen(tmp_path_factory.mktemp("memory"), TRAINING.replace("KEEP", "pass"))


@pytest.mark.timeout(120)
def test_lines_hold_what_they_were_written_to_hold(trained: tuple[Captured, str]) -> None:
    use = of_host(trained[0])
    held = by_line(use)
    # What exp has made is saved for its derivative, and the derivative takes as much when it begins.
    assert held[at(TRAINING, "torch.empty")] == pytest.approx(20 * MB, rel=0.05)
    assert held[at(TRAINING, "torch.exp")] == pytest.approx(40 * MB, rel=0.05)
    forward = {
        owner.line.line: size for owner, size in use.owners.items() if owner.line and not owner.backward
    }
    assert forward[at(TRAINING, "torch.exp")] == pytest.approx(20 * MB, rel=0.05)
    assert sum(use.owners.values()) == use.peak_bytes == max(size for _, size in use.series)


@pytest.mark.timeout(120)
def test_parameters_and_the_optimizers_state_have_their_names(trained: tuple[Captured, str]) -> None:
    held = of_host(trained[0]).owners
    assert held[Owner(None, "parameters")] == 4 * 1001 * 500
    # Two moments for each parameter; its number of steps takes four bytes each.
    assert held[Owner(None, "optimizer state")] == pytest.approx(2 * 4 * 1001 * 500, rel=0.01)


@pytest.mark.timeout(120)
def test_a_program_that_keeps_nothing_does_not_grow(trained: tuple[Captured, str]) -> None:
    captured, said = trained
    use = of_host(captured)
    assert use.growth_bytes is None
    assert len(use.step_ends_ms) == 4
    assert said == "", "the allocator's warnings are not the program's"
    assert captured.peak_resident is not None
    assert captured.peak_resident > use.peak_bytes
    assert not [one for one in captured.missing if one.what == "memory"]


@pytest.mark.timeout(120)
def test_what_every_step_keeps_is_growth_at_its_line(tmp_path: Path) -> None:
    source = TRAINING.replace("KEEP", "kept.append(torch.zeros(1_000_000))")
    use = of_host(seen(tmp_path, source)[0])
    assert use.growth_bytes == pytest.approx(4 * MB, rel=0.05)
    (line, left) = next(iter(use.left.items()))
    assert line.line is not None
    assert line.line.line == at(source, "kept.append")
    assert left == pytest.approx(4 * MB, rel=0.05)
    whole_steps = by_line(use)[at(source, "kept.append")] / (4 * MB)
    assert round(whole_steps, 2) in (3, 4), "those of the steps with lines"
    # Four steps were traced before, and kept as much.
    assert use.owners[Owner(None, BEFORE)] >= 16 * MB


@pytest.mark.timeout(120)
def test_a_program_without_an_optimizer_has_its_memory_too(tmp_path: Path) -> None:
    source = """
    import time, torch
    torch.set_num_threads(1)
    model = torch.nn.Linear(1000, 1000)
    x = torch.randn(100, 1000)
    until = time.monotonic() + 3
    with torch.no_grad():
        while time.monotonic() < until:
            y = model(x)
            big = y.repeat(50, 1)            # 20 MB
            torch.relu(big).sum().item()
    """
    captured, said = seen(tmp_path, source, warmup=0, steps=None, seconds=0.3)
    use = of_host(captured)
    assert by_line(use)[at(dedent(source), "repeat")] >= 19 * MB
    assert use.owners[Owner(None, "parameters")] == 4 * 1001 * 1000
    assert said == ""


def test_storages_count_once_and_by_the_first_that_they_are() -> None:
    shared = torch.nn.Parameter(torch.zeros(100))
    model = torch.nn.BatchNorm1d(10)
    optimizer = torch.optim.SGD(
        [{"params": [shared]}, {"params": [shared[:50].detach().requires_grad_()]}], 0.1
    )
    shared.grad = torch.ones(100)
    found = held_tensors([optimizer], [model, model])
    by_kind: dict[str, int] = {}
    for _, size, what in found["cpu"]:
        by_kind[what] = by_kind.get(what, 0) + size
    # Mean, variance, and how many batches there were.
    assert by_kind == {"parameters": 400 + 2 * 40, "buffers": 2 * 40 + 8, "gradients": 400}
    assert len({address for address, _, _ in found["cpu"]}) == len(found["cpu"])


def test_tensors_without_storage_are_passed_over() -> None:
    with torch.device("meta"):
        model = torch.nn.Linear(8, 8)
    assert held_tensors([], [model]) == {}


def test_what_the_program_made_of_torchs_calls_does_not_hear_of_ours() -> None:
    heard = []

    class Listens(TorchFunctionMode):
        def __torch_function__(self, call: Any, types: Any, given: Any = (), named: Any = None) -> Any:
            heard.append(call)
            return call(*given, **named or {})

    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Listens():
        found = held_tensors([optimizer], [model])
    assert len(found["cpu"]) == 2
    assert heard == []


NOISE = """
import os, sys, torch
from trackside.profiling.torch_messages import TorchMessages

def loses_sight():
    tensors = [torch.zeros(10) for _ in range(10)]
    with torch.autograd.profiler.profile(profile_memory=True):
        del tensors

messages = TorchMessages()
print(messages.errors_only())
if "loud" in sys.argv:
    messages.as_before()
if "fork" in sys.argv and os.fork():
    os.wait()
    sys.exit()
loses_sight()
messages.as_before()
"""


@pytest.fixture
def noise(tmp_path: Path) -> Callable[..., tuple[str, str]]:
    def run(*words: str, **environment: str) -> tuple[str, str]:
        (tmp_path / "noise.py").write_text(NOISE)
        done = subprocess.run(
            [sys.executable, str(tmp_path / "noise.py"), *words],
            env={**os.environ, "KINETO_LOG_LEVEL": "99", **environment},
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        return done.stdout.strip(), done.stderr

    return run


@pytest.mark.timeout(120)
def test_the_allocators_warning_is_held_back_and_comes_when_it_no_longer_is(
    noise: Callable[..., tuple[str, str]],
) -> None:
    quiet, loud = noise(), noise("loud")
    assert quiet[0] == loud[0] == "True"
    assert "Memory block of unknown size" not in quiet[1]
    assert "Memory block of unknown size" in loud[1]


@pytest.mark.timeout(120)
def test_a_worker_that_is_forked_meanwhile_says_what_it_has_to_say(
    noise: Callable[..., tuple[str, str]],
) -> None:
    assert "Memory block of unknown size" in noise("fork")[1]


@pytest.mark.timeout(120)
def test_a_program_that_asked_for_more_messages_gets_them(noise: Callable[..., tuple[str, str]]) -> None:
    said, errors = noise(TORCH_CPP_LOG_LEVEL="INFO")
    assert said == "False"
    assert "Memory block of unknown size" in errors
    assert noise(TORCH_CPP_LOG_LEVEL="ERROR")[0] == "True"


def test_messages_are_as_before_however_often_they_are_told() -> None:
    messages = TorchMessages()
    messages.as_before()
    assert messages.errors_only()
    assert messages.errors_only()
    messages.as_before()
    messages.as_before()
    assert messages.errors_only()
    messages.as_before()


GPU_TRAINING = """
import torch

model = torch.nn.Linear(1000, 500).cuda()
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(40, 1000, device="cuda")
kept = []

def activations(batch):
    hidden = model(batch)
    grown = hidden.repeat(2500, 1)                               # 100 000 × 500 floats: 200 MB
    wide = torch.exp(grown)                                      # and again, held for backward
    return wide.mean()

for step in range(60):
    optimizer.zero_grad()
    loss = activations(x)
    scratch = torch.empty(50_000_000, device="cuda")             # 200 MB, while backward runs
    loss.backward()
    del scratch
    optimizer.step()
    kept.append(torch.zeros(1_000_000, device="cuda"))
torch.cuda.synchronize()
"""


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_a_gpus_memory_has_its_lines_and_agrees_with_torchs_own_peak(tmp_path: Path) -> None:
    own = "\nprint(torch.cuda.max_memory_allocated(), torch.cuda.get_device_properties(0).total_memory)\n"
    captured, _ = seen(tmp_path, GPU_TRAINING + own)
    (use,) = captured.memory
    assert use.device == "cuda:0"
    assert not use.incomplete
    peak, total = map(int, (tmp_path / "out").read_text().split())
    assert use.total_bytes == total
    # The program's own peak comes at its end, when it has kept more.
    assert peak - 60 * 4.2 * MB <= use.peak_bytes <= peak
    assert sum(use.owners.values()) == use.peak_bytes
    assert use.reserved_bytes is not None
    assert use.reserved_bytes >= use.peak_bytes
    held = by_line(use)
    assert held[at(GPU_TRAINING, "torch.empty")] == pytest.approx(200 * MB, rel=0.05)
    # With its derivative, which runs on a thread without Python and is joined by time.
    assert held[at(GPU_TRAINING, "torch.exp")] == pytest.approx(400 * MB, rel=0.05)
    assert use.owners[Owner(None, "parameters")] == pytest.approx(4 * 1001 * 500, rel=0.05)
    assert use.owners[Owner(None, "optimizer state")] == pytest.approx(2 * 4 * 1001 * 500, rel=0.05)
    assert use.growth_bytes == pytest.approx(4 * MB, rel=0.1)
    assert len(use.step_ends_ms) == 4
    assert 0 < use.peak_ms < use.step_ends_ms[-1]


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_a_program_that_keeps_its_own_history_keeps_it(tmp_path: Path) -> None:
    start = (
        'import torch\ntorch.cuda.init()\ntorch.cuda.memory._record_memory_history("all", max_entries=1000)\n'
    )
    end = (
        "\nprint(torch._C._cuda_isHistoryEnabled(), len(torch.cuda.memory._snapshot()['device_traces'][0]))\n"
    )
    captured, _ = seen(tmp_path, start + GPU_TRAINING + end)
    assert (tmp_path / "out").read_text().split() == ["True", "1000"]
    assert captured.memory == []
    assert [one.effect for one in captured.missing if one.what == "memory"] == [
        "the program records its allocator's history itself, and ours would end that"
    ]
