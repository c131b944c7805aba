"""`trackside check` as the real program: comparisons that end at their first wrong output are quick."""

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.processes import gone, until
from tests.suite.projects import BASELINE, RIGHT, WRONG, project

from trackside.records.check import CheckRecord
from trackside.store.runs import RunStore
from trackside.suite.check import EXIT_CODES, ORDER, worst
from trackside.workload.supervisor import descendants

Trackside = Callable[..., subprocess.CompletedProcess[str]]

SUITE = """\
[suite]
budget = 5
pairs = 2

[workload.softmax]
baseline = "base.py"
candidate = "wrong.py"

[workload.alone]
file = "base.py"
reference = "other.py"

[workload.unusable]
file = "base.py"
reference = "right.py"
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return project(tmp_path, SUITE, base=BASELINE, other=BASELINE, right=RIGHT, wrong=WRONG)


def test_the_list_runs_nothing_and_names_what_would_run(
    trackside: Trackside, suite: Path, home: Path
) -> None:
    done = trackside("check", "--list", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert [(one["name"], one["mode"]) for one in found["workloads"]] == [
        ("softmax", "baseline"),
        ("alone", "accepted"),
        ("unusable", "accepted"),
    ]
    assert not home.exists()
    assert "wrong.py faster than base.py" in trackside("check", "--list").stdout


def test_a_wrong_candidate_fails_the_check_in_every_form(
    trackside: Trackside, suite: Path, tmp_path: Path, home: Path
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    done = trackside(
        *("check", "--json", "--junit", "j.xml", "--markdown", "m.md"), GITHUB_STEP_SUMMARY=str(summary)
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["schema"] == "trackside.check/1"
    assert found["counts"] == {"failed": 1, "error": 1, "not-comparable": 1}
    softmax, alone, unusable = found["items"]
    assert (softmax["status"], softmax["verdict"]) == ("failed", "rejected")
    assert "[3, " in softmax["reasons"][0]
    # Nothing was accepted: said at once, without minutes of timing.
    assert alone["status"] == "not-comparable"
    assert "check --accept" in alone["reasons"][0]
    # A reference without inputs is an error of that one alone.
    assert unusable["status"] == "error"
    assert "right.py" in unusable["reasons"][0]
    assert "1 of 3: softmax" in done.stderr
    cases = {case.get("name"): case for case in ElementTree.parse(tmp_path / "j.xml").getroot()[0]}
    assert cases["softmax"].find("failure") is not None
    assert cases["alone"].find("skipped") is not None
    assert cases["unusable"].find("error") is not None
    assert "| softmax |" in (tmp_path / "m.md").read_text()
    assert summary.read_text() == "before\n" + (tmp_path / "m.md").read_text()
    # The record is in the store, beside that of the comparison, and has a view.
    store = RunStore(home)
    assert CheckRecord.from_dict(store.load(found["run_id"])).exit_code == 1
    assert store.load(softmax["run_id"])["verdict"] == "rejected"
    shown = trackside("runs", "show", found["run_id"])
    assert shown.returncode == 0
    assert "✗ softmax" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--only", "softmox"], "softmax"),
        (["--junit", "nowhere/j.xml"], "nowhere"),
        (["--suite", "other.toml"], "other.toml"),
        (["--accept", "--only", "softmax"], "nothing to accept"),
    ],
)
def test_wrong_use_is_2_before_anything_runs(
    trackside: Trackside, suite: Path, home: Path, arguments: list[str], word: str
) -> None:
    done = trackside("check", *arguments, "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert word in error["message"] + error["remedy"]
    assert not home.exists()


def test_an_error_in_the_suite_is_one_document_with_its_line(trackside: Trackside, suite: Path) -> None:
    suite.write_text(SUITE.replace("pairs = 2", "piars = 2"))
    done = trackside("check", "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["message"].startswith("trackside.toml:3: found the unknown key `piars`")
    assert "`pairs`" in error["remedy"]


def test_a_file_of_accepted_ratios_that_is_none_stops_everything(
    trackside: Trackside, suite: Path, tmp_path: Path
) -> None:
    (tmp_path / "trackside.accepted.json").write_text("<<<<<<< HEAD")
    for more in ((), ("--accept", "--only", "alone")):
        done = trackside("check", *more)
        assert done.returncode == 2
        assert "trackside.accepted.json" in done.stderr
        # To accept again would end here as well.
        assert "restore the file from version control, or delete it and run" in done.stderr


def test_where_nothing_accepted_is_asked_for_its_file_may_be_broken(
    trackside: Trackside, suite: Path, tmp_path: Path
) -> None:
    (tmp_path / "trackside.accepted.json").write_text("<<<<<<< HEAD")
    (tmp_path / "wrong.py").write_text("")
    done = trackside("check", "--only", "softmax", "--json")
    assert [item["name"] for item in json.loads(done.stdout)["items"]] == ["softmax"]


def test_a_report_that_cannot_be_written_costs_neither_the_results_nor_their_code(
    trackside: Trackside, tmp_path: Path
) -> None:
    # Nothing accepted: 3, at once, and one document alone.
    text = '[workload.alone]\nfile = "base.py"\nreference = "other.py"\n'
    project(tmp_path, text, base=BASELINE, other=BASELINE)
    (tmp_path / "folder").mkdir()
    done = trackside("check", "--json", "--junit", "folder", GITHUB_STEP_SUMMARY="/nowhere/at/all")
    assert done.returncode == 3
    assert json.loads(done.stdout)["counts"] == {"not-comparable": 1}
    assert "cannot write folder" in done.stderr
    assert "cannot write /nowhere/at/all" in done.stderr


def test_where_there_is_no_gpu_nothing_is_called_wrong(trackside: Trackside, tmp_path: Path) -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("there is one here")
    text = '[suite]\ndevice = "cuda"\n[workload.a]\nbaseline = "base.py"\ncandidate = "wrong.py"\n'
    project(tmp_path, text, base=BASELINE, wrong=WRONG)
    done = trackside("check", "--json")
    assert done.returncode == 3
    assert "GPU" in json.loads(done.stdout)["items"][0]["reasons"][0]
    done = trackside("watch", "--once", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["items"][0]["state"] == "not-comparable"


@pytest.mark.parametrize("verb", ["check", "watch"])
def test_help_imports_nothing_slow(verb: str) -> None:
    program = (
        "import sys; from trackside.cli import main as cli\n"
        f"assert cli.main([{verb!r}, '--help']) == 0\n"
        "slow = [n for n in ('pydantic', 'torch', 'numpy', 'watchfiles', 'rich') if n in sys.modules]\n"
        "assert not slow, slow"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_the_worst_status_decides_the_exit_code() -> None:
    assert [EXIT_CODES[status] for status in ORDER] == [1, 2, 130, 4, 3, 0, 0]
    assert worst(["holds", "inconclusive", "failed", "error"]) == "failed"
    assert worst(["holds", "not-comparable", "inconclusive"]) == "inconclusive"
    assert worst(["holds", "not-comparable"]) == "not-comparable"
    assert worst([]) == "holds"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "ended_by"),
    # A shell's background has SIGINT ignored: then SIGTERM is what ends it, and what is below it.
    [(signal.SIGINT, signal.SIG_DFL), (signal.SIGTERM, signal.SIG_IGN)],
    ids=["ctrl-c", "terminated-in-the-background"],
)
def test_an_interrupt_keeps_what_is_done_and_leaves_no_process(
    number: signal.Signals, ended_by: signal.Handlers, suite: Path, tmp_path: Path, home: Path
) -> None:
    # The second one never ends by itself.
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(600)\n" + RIGHT)
    suite.write_text(
        '[suite]\nbudget = 5\n[workload.first]\nbaseline = "base.py"\ncandidate = "wrong.py"\n'
        '[workload.second]\nbaseline = "base.py"\ncandidate = "hangs.py"\n'
        '[workload.third]\nbaseline = "base.py"\ncandidate = "wrong.py"\n'
    )
    command = [sys.executable, "-m", "trackside", "check", "--json"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, ended_by),
    ) as process:
        assert process.stderr is not None
        seen: list[str] = []
        for line in process.stderr:
            seen.append(line)
            if "2 of 3" in line:
                break
        for line in process.stderr:
            seen.append(line)
            if "running the candidate" in line:
                break
        family = descendants(process.pid)
        assert family, seen
        os.kill(process.pid, number)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    found = json.loads(out)
    assert [item["status"] for item in found["items"]] == ["failed", "not-run", "not-run"]
    assert found["interrupted"] is True
    assert RunStore(home).load(found["run_id"])["interrupted"] is True
    until(lambda: gone(family), "the end of every process", 20)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_accepted_file_holds_unchanged_and_fails_at_three_times_the_work(
    trackside: Trackside, suite: Path, tmp_path: Path, home: Path
) -> None:
    work = (
        "import torch\n"
        "TIMES = 1\n"
        "def inputs(seed, device):\n"
        "    g = torch.Generator(device).manual_seed(seed)\n"
        "    return (torch.randn(256, 256, generator=g, device=device),)\n"
        "def run(x):\n"
        "    for _ in range(4 * TIMES):\n"
        "        y = torch.tanh(x) @ x\n"
        "    return y\n"
    )
    text = '[suite]\nbudget = 15\ndelta = 0.5\n[workload.alone]\nfile = "work.py"\nreference = "base.py"\n'
    project(tmp_path, text, base=BASELINE, work=work)

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        command = [sys.executable, "-m", "trackside", "check", "--json", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        (item,) = json.loads(done.stdout)["items"]
        print(done.returncode, item["status"], item["verdict"], item["change"], item["timings"])
        return done.returncode, item

    code, item = run("--accept")
    if item["status"] == "inconclusive":
        assert code == 4
        assert not (tmp_path / "trackside.accepted.json").exists()
        pytest.skip(f"too busy here to accept anything: {item['reasons'][0]}")
    assert (code, item["status"]) == (0, "accepted")
    accepted = json.loads((tmp_path / "trackside.accepted.json").read_text())
    assert accepted["workloads"]["alone"][0]["shapes"][0]["pairs"] >= 6
    # On a busy machine it may stay undecided; what may not be is an alarm.
    code, item = run()
    assert item["status"] in ("holds", "inconclusive")
    assert code in (0, 4)
    (tmp_path / "work.py").write_text(work.replace("TIMES = 1", "TIMES = 3"))
    code, item = run()
    assert (code, item["status"], item["verdict"]) == (1, "failed", "slower")
    assert 2 < item["change"]["ratio"] < 4.5
    # The reference is the unit: with another one nothing can be said.
    (tmp_path / "base.py").write_text(BASELINE + "# changed\n")
    code, item = run()
    assert (code, item["status"]) == (3, "not-comparable")
