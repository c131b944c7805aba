"""`trackside compare` as far as the command line goes: its help, its devices, and what --explain says."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from trackside.cli import main as cli
from trackside.cli.compare import _Live
from trackside.comparison import commands
from trackside.comparison.options import CERTIFIED_PAIRS, DEFAULT_PAIRS
from trackside.store import runs
from trackside.store.runs import RunStore

Trackside = Callable[..., subprocess.CompletedProcess[str]]

CHECK = {
    "id": "aliasing",
    "status": "fail",
    "detail": "out[0] is the input \x1b[2J",
    "evidence": {"output": "\x9b"},
}


def store_run(home: Path, verb: str = "compare", **record: object) -> str:
    store = RunStore(home)
    run = store.new_run(verb)
    store.write_record(run, {"schema": f"trackside.{verb}/1", "status": "done"} | record)
    return run.id


# -- help ----------------------------------------------------------------------------------------------------


def test_the_help_names_the_defaults_that_the_comparison_has(trackside: Trackside) -> None:
    shown = " ".join(trackside("compare", "--help").stdout.split())
    # One number stands for a GPU and for commands.
    assert DEFAULT_PAIRS["cuda"] == commands._BLOCKS
    assert (
        f"(default {DEFAULT_PAIRS['cpu']} on a CPU, {DEFAULT_PAIRS['cuda']} on a GPU and with --command; "
        f"at least 2, certified from {CERTIFIED_PAIRS} on)" in shown
    )


# -- devices -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "device", ["tpu", "cpu:", "cpu:0", "cuda:", "cuda:-1", "cuda:x", "cuda:²", "cuda:\u0661"]
)
@pytest.mark.parametrize("command", [["compare", "base.py", "new.py"], ["selfcheck"]])
def test_a_device_by_another_name_is_wrong_use(
    command: list[str], device: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command, "--device", device, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error == {
        "kind": "usage",
        "message": f"found --device {device}",
        "remedy": "needed: cpu, cuda or cuda:N",
    }


# -- narration -----------------------------------------------------------------------------------------------


def test_a_log_gets_a_line_for_each_phase_and_each_pair_of_workers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    quads = {"phase": "quads", "pairs": 2, "low": 1.5, "high": 2.0}
    with _Live() as live:
        live.update({"phase": "start", "run_id": "c-1"})
        for pid in (5, 5, 6):
            live.update({"phase": "waiting", "holder": {"verb": "profile", "pid": pid}})
        for number in (1, 2):
            live.update({"phase": "shape", "number": number, "count": 2, "shape": f"[{number}]\x1b[2J"})
        for pair, n in ((1, 1), (1, 2), (2, 3), (2, 4)):
            live.update(quads | {"pair": pair, "quads": n})
    assert capsys.readouterr() == (
        "",
        "starting\n"
        "waiting: profile (process 5) measures on this device\n"
        "waiting: profile (process 6) measures on this device\n"
        "shape 1 of 2: [1]\\x1b[2J\n"
        "shape 2 of 2: [2]\\x1b[2J\n"
        "timing: pair 1 of 2, 1 quads, ratio so far 1.500 to 2.000\n"
        "timing: pair 2 of 2, 3 quads, ratio so far 1.500 to 2.000\n",
    )


# -- --explain -----------------------------------------------------------------------------------------------


def test_explain_tells_what_a_check_saw_and_in_which_run(trackside: Trackside, home: Path) -> None:
    store_run(home, checks=[CHECK | {"detail": "of an older run"}])
    last = store_run(home, checks=[CHECK])
    store_run(home, status="failed", checks=[])
    store_run(home, verb="selfcheck")
    done = trackside("compare", "--explain", "aliasing")
    assert (done.returncode, done.stderr) == (0, "")
    assert r"fail: out[0] is the input \x1b[2J" in done.stdout
    assert done.stdout.endswith(f"  in run     {last}\n")
    document = json.loads(trackside("compare", "--explain", "aliasing", "--json").stdout)
    assert (document["run_id"], document["last"]) == (last, CHECK)


def test_explain_prints_nothing_that_steers_the_terminal(trackside: Trackside, home: Path) -> None:
    store_run(home, checks=[CHECK])
    shown = trackside("compare", "--explain", "aliasing").stdout
    assert "\x1b" not in shown
    assert "\x9b" not in shown


def test_explain_speaks_of_no_run_where_none_has_finished(trackside: Trackside, home: Path) -> None:
    RunStore(home).new_run("compare")
    done = trackside("compare", "--explain", "aliasing")
    assert (done.returncode, done.stderr) == (0, "")
    assert "run" not in done.stdout.replace("returning", "")
    document = json.loads(trackside("compare", "--explain", "aliasing", "--json").stdout)
    assert (document["run_id"], document["last"]) == (None, None)


@pytest.mark.parametrize("record", [{}, {"checks": [{"name": "aliasing"}]}])
def test_explain_gets_along_with_a_record_of_another_make(
    trackside: Trackside, home: Path, record: dict[str, object]
) -> None:
    run_id = store_run(home, **record)
    done = trackside("compare", "--explain", "aliasing")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"in run     {run_id}, which has no result of it" in done.stdout


def test_explain_reads_the_newest_record_and_no_other(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(30):
        store_run(home, checks=[])
    last = store_run(home, checks=[CHECK])
    opened: list[str] = []
    read = runs.read_json
    monkeypatch.setattr(runs, "read_json", lambda path: (opened.append(path.parent.name), read(path))[1])
    assert cli.main(["compare", "--explain", "aliasing"]) == 0
    assert set(opened) == {last}
    assert last in capsys.readouterr().out


def test_explain_looks_behind_runs_that_did_not_finish(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = store_run(home, checks=[CHECK])
    for _ in range(25):
        store_run(home, status="failed", checks=[])
    assert cli.main(["compare", "--explain", "aliasing"]) == 0
    assert last in capsys.readouterr().out
