"""`with trackside.profile():`, in a process of its own, since a profiler is one for each."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.processes import holding_process

from trackside import notebook
from trackside.records.errors import TracksideError
from trackside.store.lock import DeviceLock

# Most of it the import of torch, and more than once: a busy machine takes minutes.
pytestmark = pytest.mark.timeout(300)

BEFORE = """
import sys, trackside
with trackside.profile():
    pass
assert "torch" not in sys.modules
import torch
assert not torch._C._autograd._profiler_enabled()
"""

HEAD = """
import json, linecache, sys, torch, trackside
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
x = torch.randn(64, 128)
def told(name, profile):
    print(json.dumps({name: profile.record.to_dict()}))
"""

# One after the other in one process: what a block takes is the import of torch.
BLOCKS = """
with trackside.profile() as profile:
    y = model(x)                    # here
told("short", profile)
print(profile)
page = profile._repr_html_()
assert page.startswith("<iframe srcdoc=") and len(page) > 10_000
print("kept", sorted(one.name for one in profile.folder.iterdir()))

try:
    with trackside.profile() as profile:
        model(x)
        raise KeyError("mine")
except KeyError as error:
    assert error.args == ("mine",)
told("error", profile)

name, source = "<ipython-input-3-abc>", "for _ in range(5):\\n    y = model(x).softmax(-1)\\n"
linecache.cache[name] = (len(source), None, source.splitlines(True), name)
with trackside.profile() as profile:
    exec(compile(source, name, "exec"))
told("cell", profile)

from torch.profiler import ProfilerActivity
with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as own:
    with trackside.profile() as profile:
        model(x)
assert any(event.key == "aten::linear" for event in own.key_averages())
told("inside", profile)
"""

STEPS = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
with trackside.profile(warmup=2, steps=3) as profile:
    train(20)
told("steps", profile)
with trackside.profile() as profile:
    train(2)
told("few", profile)
with trackside.profile() as profile:
    train(30)
told("some", profile)
assert not torch._C._autograd._profiler_enabled() and sys.gettrace() is None
"""

# Blocks wait for the compiler too, and none of them any longer.
AFTER = """
assert not [one for one in sys.meta_path if type(one).__module__.startswith("trackside")]
import torch._inductor.compile_fx as compiler
assert "trackside" not in compiler._compile_fx_inner.__code__.co_filename
print("nothing stayed behind")
"""


@dataclass(frozen=True)
class Ran:
    """A program that has run, and the records of its blocks by their names."""

    source: list[str]
    records: dict[str, dict[str, Any]]
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("blocks")
    script = folder / "cell.py"
    script.write_text(BEFORE + HEAD + BLOCKS + STEPS + AFTER)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=270,
        cwd=folder,
        env={
            "PATH": "/usr/bin",
            "TRACKSIDE_HOME": str(folder / "home"),
            "TRACKSIDE_LOCKS": str(folder / "locks"),
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "OMP_NUM_THREADS": "1",
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records: dict[str, dict[str, Any]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            records |= json.loads(line)
    return Ran(script.read_text().split("\n"), records, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("file", "module", "command"),
    [
        ("train.py", None, ["train.py", "-n", "1"]),
        ("package/train.py", "package.train", ["-m", "package.train", "-n", "1"]),
        ("package/__main__.py", "package.__main__", ["-m", "package", "-n", "1"]),
        (None, None, []),
        (pytest.__file__, "pytest.__main__", []),
    ],
    ids=["script", "module", "package", "notebook", "tool"],
)
def test_what_would_run_again_is_the_program_around_the_block(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str | None, module: str | None, command: list[str]
) -> None:
    main = ModuleType("__main__")
    if file is not None:
        main.__file__ = str(tmp_path / file)
    if module is not None:
        main.__spec__ = ModuleSpec(module, None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", ["train.py", "-n", "1"])
    assert notebook._command() == command


def test_a_block_that_is_soon_over_is_traced_as_a_whole_with_its_lines(blocks: Ran) -> None:
    record = blocks.records["short"]
    assert blocks.source[record["lines"][0]["line"] - 1].endswith("# here")
    assert "aten::linear" in {kernel["name"] for kernel in record["kernels"]}
    assert {module["path"] for module in record["modules"]} >= {"model", "model.0", "model.2"}
    assert "A" not in {window["window"] for window in record["windows"]}
    assert any(one["what"] == "true step times" for one in record["trust"])
    assert "cell.py:" in blocks.stdout
    assert "kept ['record.json', 'report.html', 'run.json', 'trace.json.gz']" in blocks.stdout
    assert "trackside" not in blocks.stderr


def test_a_block_of_steps_has_its_windows_and_another_block_may_follow(blocks: Ran) -> None:
    first, second = blocks.records["steps"], blocks.records["few"]
    windows = [(one["window"], one["steps"]) for one in first["windows"]]
    assert windows == [("A", 3), ("L", 2), ("T", 3), ("B", 3)]
    assert first["steps_found_by"] == "calls of Optimizer.step"
    assert first["step_ms"] > 0
    assert [one["window"] for one in second["windows"]] == ["T", "B"]
    assert second["run_id"] != first["run_id"]


def test_a_block_that_ends_before_its_steps_are_traced_has_its_first_ones(blocks: Ran) -> None:
    record = blocks.records["some"]
    assert [one["window"] for one in record["windows"]] == ["A", "T", "B"]
    assert record["steps_found_by"] == "calls of Optimizer.step"
    texts = {line["text"].strip() for line in record["lines"]}
    assert "model(x).sum().backward()" in texts
    assert "aten::linear" in {kernel["name"] for kernel in record["kernels"]}


def test_what_is_imported_after_a_block_is_imported_without_us(blocks: Ran) -> None:
    assert blocks.stdout.endswith("nothing stayed behind\n")


def test_an_error_in_the_block_is_the_program_s_and_what_was_seen_is_kept(blocks: Ran) -> None:
    record = blocks.records["error"]
    assert record["program"]["exit_code"] == 1
    assert record["lines"]


def test_lines_of_a_cell_that_is_in_no_file_are_shown(blocks: Ran) -> None:
    lines = blocks.records["cell"]["lines"]
    (line,) = [line for line in lines if line["file"].startswith("<ipython") and line["line"] == 2]
    assert line["text"].strip() == "y = model(x).softmax(-1)"


def test_a_block_inside_the_program_s_own_profiler_runs_and_says_that_it_saw_nothing(blocks: Ran) -> None:
    record = blocks.records["inside"]
    assert record["lines"] == []
    assert any("a profiler of its own" in one["effect"] for one in record["trust"])


# -- others that measure -------------------------------------------------------------------------------------

# Neither of them imports torch, which the devices do not depend on.
CELL = """
import sys, trackside
from trackside import notebook
notebook._PATIENCE_S = float(sys.argv[1])
with trackside.profile() as profile:
    print("begun", flush=True)
    sys.stdin.readline()
print([one.effect for one in profile.record.trust if one.what.startswith("others may")])
"""
NESTED = """
import trackside
with trackside.profile() as outer:
    with trackside.profile() as inner:
        pass
    try:
        trackside.compare("a.py", "a.py", quick=True, budget=5)
    except trackside.records.errors.TracksideError as error:
        print(error.kind, error.message)
records = [outer.record, inner.record]
trust = [[one.effect for one in each.trust if one.what.startswith("others")] for each in records]
print(len(trust[0]), *trust[1])
"""


def cell(folder: Path, source: str, *words: str, **variables: str) -> subprocess.Popen[str]:
    place = {"TRACKSIDE_HOME": str(folder / "home"), "TRACKSIDE_LOCKS": str(folder / "locks")}
    (folder / "locks").mkdir(mode=0o700, exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", source, *words],
        env=os.environ | place | variables,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_block_has_its_devices_for_itself_and_waits_for_them(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir(mode=0o700)
    with holding_process("cpu", tmp_path / "locks") as holder:
        process = cell(tmp_path, CELL, "100")
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said == f"waiting: compare (process {holder.pid}) measures on this device\n"
        assert not (tmp_path / "home").exists()
    assert process.stdout.readline() == "begun\n"
    with pytest.raises(TracksideError, match=f"process {process.pid} .trackside profile"):
        DeviceLock("cpu", False, folder=tmp_path / "locks").__enter__()
    out, err = process.communicate("\n", timeout=60)
    assert (out, process.returncode) == ("[]\n", 0), err
    with DeviceLock("cpu", False, folder=tmp_path / "locks"):
        pass


def test_a_block_does_not_wait_for_ever_and_then_says_who_was_there(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir(mode=0o700)
    with holding_process("cpu", tmp_path / "locks") as holder:
        out, err = cell(tmp_path, CELL, "0.5").communicate("\n", timeout=60)
    assert f"cpu is in use by process {holder.pid} (trackside compare)" in out, err


def test_ranks_of_torchrun_do_not_wait_for_each_other_in_their_blocks(tmp_path: Path) -> None:
    ranks = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "x"}
    both = [cell(tmp_path, CELL, "100", RANK=str(number), **ranks) for number in range(2)]
    for one in both:
        assert one.stdout is not None
        assert one.stdout.readline() == "begun\n"
    assert [one.communicate("\n", timeout=60)[0] for one in both] == ["[]\n"] * 2


def test_a_block_inside_a_block_is_measured_and_a_comparison_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def inputs(seed, device): return ()\ndef run(): return 1\n")
    process = cell(tmp_path, NESTED)
    out, err = process.communicate(timeout=100)
    refused, trust = out.splitlines()
    assert refused.startswith(f"busy cpu is in use by process {process.pid} (trackside profile)"), err
    assert trust.startswith("0 it was measured all the same: cpu is in use by process")
