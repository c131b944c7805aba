"""`with trackside.profile():`, in processes of their own, since a profiler is one for each."""

import json
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trackside import notebook

HEAD = """
import json, linecache, sys, torch, trackside
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
x = torch.randn(64, 128)
def told(profile):
    print(json.dumps(profile.record.to_dict()))
"""


def ran(folder: Path, program: str) -> tuple[list[dict[str, Any]], subprocess.CompletedProcess[str]]:
    script = folder / "cell.py"
    script.write_text(HEAD + program)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=150,
        cwd=folder,
        env={
            "PATH": "/usr/bin",
            "TRACKSIDE_HOME": str(folder / "home"),
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        },
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done


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


@pytest.mark.timeout(170)
def test_a_block_that_is_soon_over_is_traced_as_a_whole_with_its_lines(tmp_path: Path) -> None:
    (record,), done = ran(
        tmp_path,
        """
with trackside.profile() as profile:
    y = model(x)                    # here
told(profile)
print(profile)
page = profile._repr_html_()
assert page.startswith("<iframe srcdoc=") and len(page) > 10_000
print("kept", sorted(one.name for one in profile.folder.iterdir()))
""",
    )
    assert done.returncode == 0, done.stderr
    source = (tmp_path / "cell.py").read_text().split("\n")
    assert source[record["lines"][0]["line"] - 1].endswith("# here")
    assert "aten::linear" in {kernel["name"] for kernel in record["kernels"]}
    assert {module["path"] for module in record["modules"]} >= {"model", "model.0", "model.2"}
    assert "A" not in {window["window"] for window in record["windows"]}
    assert any(one["what"] == "true step times" for one in record["trust"])
    assert "cell.py:" in done.stdout
    assert "kept ['record.json', 'report.html', 'run.json', 'trace.json.gz']" in done.stdout
    assert "trackside" not in done.stderr


@pytest.mark.timeout(170)
def test_a_block_of_steps_has_its_windows_and_another_block_may_follow(tmp_path: Path) -> None:
    (first, second), done = ran(
        tmp_path,
        """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
with trackside.profile(warmup=2, steps=3) as profile:
    train(20)
told(profile)
with trackside.profile() as profile:
    train(2)
told(profile)
assert not torch._C._autograd._profiler_enabled() and sys.gettrace() is None
""",
    )
    assert done.returncode == 0, done.stderr
    assert [(one["window"], one["steps"]) for one in first["windows"]] == [("A", 3), ("T", 3), ("B", 3)]
    assert first["steps_found_by"] == "calls of Optimizer.step"
    assert first["step_ms"] > 0
    assert [one["window"] for one in second["windows"]] == ["T", "B"]
    assert second["run_id"] != first["run_id"]


@pytest.mark.timeout(170)
def test_an_error_in_the_block_is_the_program_s_and_what_was_seen_is_kept(tmp_path: Path) -> None:
    (record,), done = ran(
        tmp_path,
        """
try:
    with trackside.profile() as profile:
        model(x)
        raise KeyError("mine")
except KeyError as error:
    assert error.args == ("mine",)
told(profile)
""",
    )
    assert done.returncode == 0, done.stderr
    assert record["program"]["exit_code"] == 1
    assert record["lines"]


@pytest.mark.timeout(170)
def test_lines_of_a_cell_that_is_in_no_file_are_shown(tmp_path: Path) -> None:
    (record,), done = ran(
        tmp_path,
        """
name, source = "<ipython-input-3-abc>", "for _ in range(5):\\n    y = model(x).softmax(-1)\\n"
linecache.cache[name] = (len(source), None, source.splitlines(True), name)
with trackside.profile() as profile:
    exec(compile(source, name, "exec"))
told(profile)
""",
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in record["lines"] if line["file"].startswith("<ipython") and line["line"] == 2]
    assert line["text"].strip() == "y = model(x).softmax(-1)"


@pytest.mark.timeout(170)
def test_a_block_inside_the_program_s_own_profiler_runs_and_says_that_it_saw_nothing(tmp_path: Path) -> None:
    (record,), done = ran(
        tmp_path,
        """
from torch.profiler import ProfilerActivity
with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as own:
    with trackside.profile() as profile:
        model(x)
assert any(event.key == "aten::linear" for event in own.key_averages())
told(profile)
""",
    )
    assert done.returncode == 0, done.stderr
    assert record["lines"] == []
    assert any("a profiler of its own" in one["effect"] for one in record["trust"])
