"""The pytest plugin, in runs of pytest of its own."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.suite.projects import BASELINE, RIGHT, WRONG

# As in a project with no patience for warnings.
SETTINGS = (
    "[pytest]\nfilterwarnings = error\naddopts = --strict-markers --strict-config -p no:cacheprovider\n"
)


def run(
    folder: Path, test: str, settings: str = SETTINGS, *arguments: str
) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text(settings)
    (folder / "test_speed.py").write_text(test)
    lost = f"import nowhere\n{BASELINE}"
    for name, source in (("base", BASELINE), ("right", RIGHT), ("wrong", WRONG), ("lost", lost)):
        (folder / f"{name}.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "test_speed.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_plugin_is_installed_and_imports_nothing_heavy() -> None:
    program = (
        "import sys, importlib.metadata as m\n"
        "(found,) = [e for e in m.entry_points(group='pytest11') if e.name == 'trackside']\n"
        "before = set(sys.modules); found.load()\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "heavy = new & {'torch', 'numpy', 'pydantic', 'rich', 'orjson', 'psutil', 'typer', 'watchfiles'}\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_other_peoples_runs_are_not_disturbed(tmp_path: Path) -> None:
    test = (
        "import sys\n"
        "def test_one():\n"
        "    heavy = {'torch', 'numpy', 'pydantic', 'orjson', 'psutil', 'typer'}\n"
        "    assert not heavy & set(sys.modules)\n"
    )
    done = run(tmp_path, test, SETTINGS, "-p", "no:hypothesispytest")
    assert done.returncode == 0, done.stdout
    assert "warning" not in done.stdout
    listed = run(tmp_path, test, SETTINGS, "--markers")
    assert "@pytest.mark.trackside(" in listed.stdout
    assert not (tmp_path / ".trackside").exists()


def test_a_wrong_candidate_fails_its_test_with_verdict_and_reason(tmp_path: Path, home: Path) -> None:
    test = (
        "import pytest\n"
        "@pytest.mark.trackside(pairs=2, quick=True)\n"
        "def test_wrong(trackside_compare):\n"
        "    trackside_compare('base.py', 'wrong.py', claim='not-slower')\n"
        "def test_missing(trackside_compare):\n"
        "    trackside_compare('base.py', 'missing.py')\n"
        "def test_lost(trackside_compare):\n"
        "    trackside_compare('lost.py', 'right.py')\n"
        "def test_elsewhere(trackside_compare):\n"
        "    trackside_compare('base.py', 'right.py', device='cuda:77')\n"
        "def test_option(trackside_compare):\n"
        "    trackside_compare('base.py', 'right.py', tolerance=1)\n"
    )
    done = run(tmp_path, test, SETTINGS + "trackside_budget = 5\n")
    assert done.returncode == 1
    assert "4 failed" in done.stdout
    # A lost import is the file's defect, and no lack of the machine.
    assert "an import of `nowhere`" in done.stdout
    assert "trackside: rejected, and `not-slower` was claimed" in done.stdout
    assert "output-matches-oracle" in done.stdout
    assert "trackside runs show c-" in done.stdout
    assert "no file at" in done.stdout
    assert "TypeError: trackside_compare has no option 'tolerance'" in done.stdout
    # This machine cannot: skipped, and said; where there is a GPU, 77 of them there are not.
    assert "1 skipped" in done.stdout


@pytest.mark.parametrize(
    ("settings", "test", "word"),
    [
        ("trackside_inconclusive = maybe\n", "", "fail or skip"),
        ("", "import pytest\npytestmark = pytest.mark.trackside('cuda')\n", "named options only"),
    ],
)
def test_wrong_settings_are_said(tmp_path: Path, settings: str, test: str, word: str) -> None:
    use = "def test_one(trackside_compare):\n    pass\n"
    done = run(tmp_path, test + use, SETTINGS + settings)
    assert done.returncode == 1
    assert word in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_right_and_faster_candidate_passes_and_gives_its_record(tmp_path: Path, home: Path) -> None:
    slow = BASELINE.replace("return torch", "for _ in range(3000):\n        torch.exp(x)\n    return torch")
    test = (
        "def test_fast(trackside_compare, tmp_path):\n"
        "    record = trackside_compare('slow.py', 'right.py', budget=15)\n"
        "    assert record['verdict'] == 'faster'\n"
        "def test_slower(trackside_compare):\n"
        "    trackside_compare('right_base.py', 'slow.py', budget=15)\n"
    )
    (tmp_path / "slow.py").write_text(slow)
    (tmp_path / "right_base.py").write_text(BASELINE)
    done = run(tmp_path, test)
    print(done.stdout[-1500:])
    assert "1 failed, 1 passed" in done.stdout
    assert "trackside: slower, and `faster` was claimed" in done.stdout
    assert "speedup 0." in done.stdout
