"""What `import trackside` gives: little to load, and compare as a function."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trackside
from trackside.records.errors import TracksideError


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ("pydantic", "numpy", "torch", "psutil", "rich")
    program = f"import sys, trackside; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_compare_is_the_trial_with_the_options_given(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("trackside.comparison.trial.run_trial", asked.append)
    trackside.compare("base.py", Path("new.py"), device="cuda:1", budget=5)
    (options,) = asked
    assert (options.baseline, options.candidate) == (Path("base.py"), Path("new.py"))
    assert (options.device, options.budget) == ("cuda:1", 5)


@pytest.mark.parametrize(
    "option",
    [
        {"device": "cuda:²"},
        {"device": "cpu:0"},
        {"metric": "time"},
        {"claim": "Faster"},
        {"budget": float("nan")},
        {"delta": 1.0},
        {"pairs": 1},
        {"threads": 0},
        {"build_timeout": float("inf")},
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_refused_before_anything_runs(option: dict[str, Any]) -> None:
    with pytest.raises(TracksideError) as caught:
        trackside.compare("base.py", "new.py", **option)
    assert caught.value.kind == "usage"
    assert str(next(iter(option.values()))) in caught.value.message
    assert "needed" in caught.value.remedy


def test_an_option_that_does_not_exist_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="speed"):
        trackside.compare("base.py", "new.py", speed=11)  # type: ignore[call-arg]


def test_the_judge_does_without_torch() -> None:
    """It starts seconds sooner, and nothing of what workers load can hurt it."""
    code = "import sys, trackside.comparison.trial, trackside.cli.compare; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_modules_of_the_working_directory_are_not_taken_for_pythons(tmp_path: Path) -> None:
    for name in ("json", "random", "signal", "threading", "traceback"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('a module of the user')")
    command = [sys.executable, "-m", "trackside", "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"trackside {trackside.__version__}\n")
