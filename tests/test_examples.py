"""Every example, and every workload that the documentation shows, through the checks of compare."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trackside.comparison.commands import CommandOptions, run_commands
from trackside.comparison.trial import Crew, Options, run_trial
from trackside.records.compare import CompareRecord

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"

# Baseline, candidate, and the check that must refuse it.
PAIRS = [
    ("matmul_chain/baseline.py", "matmul_chain/candidate.py", None),
    ("matmul_chain/baseline.py", "matmul_chain/cheat.py", "output-matches-oracle"),
    ("layernorm_module/baseline.py", "layernorm_module/candidate.py", None),
    ("kernelbench/baseline.py", "kernelbench/candidate.py", None),
    ("gpumode", "gpumode/submission.py", None),
]
COMMANDS = ("commands/old.py", "commands/new.py")

# A block of the documentation that is a file of its own says so in its first line.
_FILE = re.compile(
    r"```python\n(# (\w+)_(baseline|candidate|wrong)\.py(?: rejected by ([\w-]+))?\n.*?)```", re.DOTALL
)


def checked(baseline: Path, candidate: Path, crew: Crew, store: Path) -> CompareRecord:
    """All checks but the timing."""
    return run_trial(Options(baseline, candidate, checks_only=True, store=store), crew=crew)


def refused_by(record: CompareRecord) -> str | None:
    return next((check.id for check in record.checks if check.status == "fail"), None)


def shown_workloads() -> list[tuple[str, str, str | None]]:
    """Name, candidate's role and the check that refuses it, for every pair in the documentation."""
    blocks = _FILE.findall((ROOT / "docs" / "workloads.md").read_text(encoding="utf-8"))
    return [(name, role, check or None) for _, name, role, check in blocks if role != "baseline"]


def written(folder: Path, page: str) -> Path:
    """The files that a page shows, in `folder`."""
    for text, name, role, _ in _FILE.findall((ROOT / page).read_text(encoding="utf-8")):
        (folder / f"{name}_{role}.py").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(("baseline", "candidate", "check"), PAIRS, ids=lambda value: str(value))
def test_an_example_passes_every_check_or_is_refused_as_its_text_says(
    baseline: str, candidate: str, check: str | None, crew: Crew, tmp_path: Path
) -> None:
    record = checked(EXAMPLES / baseline, EXAMPLES / candidate, crew, tmp_path)
    assert refused_by(record) == check, record.reasons
    assert record.verdict == ("rejected" if check else "inconclusive"), record.reasons


def test_the_cheat_is_refused_with_the_element_that_gives_it_away(crew: Crew, tmp_path: Path) -> None:
    chain = EXAMPLES / "matmul_chain"
    record = checked(chain / "baseline.py", chain / "cheat.py", crew, tmp_path)
    assert re.search(r"out\[\d+, \d+\]: expected -?[\d.]+, found -?[\d.]+", record.reasons[0])


PROFILED = "slow_training/train.py"


@pytest.mark.timeout(240)
def test_a_profile_of_the_slow_training_finds_its_loop(tmp_path: Path) -> None:
    """The largest of its problems; the smaller ones may drown in what else the machine does."""
    script = EXAMPLES / PROFILED
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "trackside",
            "profile",
            "--warmup",
            "1",
            "--steps",
            "3",
            "--json",
            str(script),
        ],
        env=os.environ
        | {"TRACKSIDE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
        | {"TRACKSIDE_LOCKS": str(tmp_path / "locks")},
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    places = {finding["line"]: finding for finding in record["findings"]}
    loop = next(n for n, text in enumerate(script.read_text().split("\n"), 1) if "for row in x" in text)
    # One product of all rows was timed here, derivatives included: the step has mostly these.
    assert places[loop]["id"] == "looped-products"
    assert places[loop]["gain"]["low"] > 0.1
    assert record["breakdown_ms"]["compute"] > 0


def test_no_example_is_without_a_test() -> None:
    named = {path for pair in PAIRS for path in pair[:2]} | set(COMMANDS) | {PROFILED}
    tested = {EXAMPLES / path for path in named} | {EXAMPLES / "gpumode" / "reference.py"}
    assert set(EXAMPLES.rglob("*.py")) <= tested


def test_the_example_commands_print_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trackside.store.lock._lock_folder", lambda: tmp_path)
    monkeypatch.setattr("trackside.comparison.commands._MAX_QUADS", 1)
    old, new = (f"{sys.executable} {EXAMPLES / path} {{seed}}" for path in COMMANDS)
    record = run_commands(CommandOptions(old, new, pairs=2, folder=tmp_path, store=tmp_path / "home"))
    # Beside other tests the machine is not quiet; what was printed is the same all the same.
    assert refused_by(record) in (None, "machine-quiet"), record.reasons
    assert record.accuracy["files"][0]["identical"]


@pytest.mark.parametrize(("name", "role", "check"), shown_workloads(), ids=lambda value: str(value))
def test_a_workload_in_the_documentation_is_judged_as_the_page_says(
    name: str, role: str, check: str | None, crew: Crew, tmp_path: Path
) -> None:
    written(tmp_path, "docs/workloads.md")
    record = checked(tmp_path / f"{name}_baseline.py", tmp_path / f"{name}_{role}.py", crew, tmp_path)
    assert refused_by(record) == check, record.reasons


def test_the_readme_shows_the_first_workload_of_the_documentation(tmp_path: Path) -> None:
    (tmp_path / "readme").mkdir()
    (tmp_path / "docs").mkdir()
    readme, docs = written(tmp_path / "readme", "README.md"), written(tmp_path / "docs", "docs/workloads.md")
    shown = {path.name for path in readme.iterdir()}
    assert shown == {"softmax_baseline.py", "softmax_candidate.py"}
    assert all((readme / name).read_text() == (docs / name).read_text() for name in shown)
