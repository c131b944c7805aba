"""`trackside profile` and `report`, as the real program around real programs."""

import array
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.processes import until
from tests.trace.kineto import Maker

from trackside.cli.profile import own_arguments
from trackside.store.lock import DeviceLock
from trackside.store.runs import RunStore

Trackside = Callable[..., subprocess.CompletedProcess[str]]

# Writes to both streams, reads its own options, moves elsewhere and fails in the end.
TRAINING = """
import os, sys, torch
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
os.chdir("/")
for step in range(40):
    loss = model(torch.randn(256, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("arguments", sys.argv[1:])
print("said to stderr", file=sys.stderr)
raise SystemExit(7)
"""


def start(folder: Path, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "trackside", "profile", *arguments],
        env=os.environ
        | {"TRACKSIDE_HOME": str(folder / "home"), "COLUMNS": "100", "NO_COLOR": "1"}
        # Others measure at the same time.
        | {"TRACKSIDE_LOCKS": str(folder / "locks")},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str, str]:
    """One run for all who look at it: folder, exit code, stdout, stderr."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "train.py").write_text(TRAINING)
    with start(folder, "--warmup", "2", "--steps", "5", "train.py", "--json", "--steps", "9") as process:
        out, err = process.communicate(timeout=100)
    return folder, process.returncode, out, err


@pytest.mark.timeout(120)
def test_output_arguments_and_exit_code_are_the_programs_own(trained: tuple[Path, int, str, str]) -> None:
    _, code, out, err = trained
    assert code == 7
    assert out == "arguments ['--json', '--steps', '9']\n"
    assert "said to stderr\n" in err


def test_the_story_goes_to_stderr_and_ends_with_the_next_command(
    trained: tuple[Path, int, str, str],
) -> None:
    folder, _, _, err = trained
    (run,) = RunStore(folder / "home").list()
    for part in (
        "trackside: timed: 5 steps",
        "trackside: traced: 5 steps",
        "trackside: with lines: 3 steps",
        "trackside: with both: 5 steps",
        "A step takes",
        "train.py:8",
        "model(torch.randn(256, 64))",
        "aten::linear",
        "it ended with exit code 7",
        f"report home/runs/{run.id}/report.html",
        f"next: trackside report {run.id} --open",
    ):
        assert part in err


def test_the_runs_folder_holds_record_page_and_trace(trained: tuple[Path, int, str, str]) -> None:
    folder, _, _, _ = trained
    (run,) = RunStore(folder / "home").list()
    assert {path.name for path in run.folder.iterdir()} == {
        *("run.json", "record.json", "report.html", "trace.json.gz"),
    }
    record = RunStore(folder / "home").load(run.id)
    assert record["schema"] == "trackside.profile/1"
    assert record["run_id"] == run.id
    assert record["program"]["exit_code"] == 7
    assert record["options"] == {"warmup": 2, "steps": 5}
    assert record["command"] == ["python", "train.py", "--json", "--steps", "9"]
    windows = [(row["window"], row["steps"]) for row in record["windows"]]
    assert windows == [("A", 5), ("L", 3), ("T", 5), ("B", 5)]
    assert sum(record["breakdown_ms"].values()) == pytest.approx(record["step_ms"])
    # The line with the model has the derivatives; of the rest a busy machine may give any line more.
    first = max(record["lines"], key=lambda row: row["backward_ms"])
    assert (first["file"], first["line"], first["calls"]) == ("train.py", 8, 1.0)
    assert first["backward_ms"] > 0
    shares = [*record["lines"], *record["buckets"]]
    assert sum(row["share"] for row in shares) == pytest.approx(1.0, abs=0.05)
    assert {bucket["name"] for bucket in record["buckets"]} >= {"optimizer"}
    assert record["sources"]["train.py"] == TRAINING.splitlines()
    assert record["timeline"][0]["name"] == "main thread"
    assert record["telemetry"]["samples"] > 1
    assert record["environment"]["software"]["torch"]
    assert "model(torch.randn(256, 64))" in (run.folder / "report.html").read_text()


def test_past_profiles_are_listed_shown_and_have_their_page_written_again(
    trained: tuple[Path, int, str, str], trackside: Trackside
) -> None:
    folder, _, _, _ = trained
    home = str(folder / "home")
    (run,) = RunStore(folder / "home").list()
    (run.folder / "report.html").unlink()
    listed = trackside("runs", "list", TRACKSIDE_HOME=home)
    assert "train.py --json --steps 9: A step takes" in listed.stdout
    shown = trackside("runs", "show", run.id[:12], TRACKSIDE_HOME=home)
    assert "train.py:8" in shown.stdout
    written = trackside("report", TRACKSIDE_HOME=home)
    assert (written.returncode, written.stdout) == (0, f"{run.folder}/report.html\n")
    assert (run.folder / "report.html").stat().st_size > 10_000
    document = json.loads(trackside("report", "last", "--json", TRACKSIDE_HOME=home).stdout)
    assert (document["run_id"], document["path"]) == (run.id, f"{run.folder}/report.html")


def test_a_page_of_no_profile_is_refused(trackside: Trackside, home: Path) -> None:
    assert "there is no profile" in trackside("report").stderr
    trackside("machine")
    last = trackside("runs", "list", "--json")
    refused = trackside("report", json.loads(last.stdout)["runs"][0]["id"])
    assert refused.returncode == 2
    assert "only profiles have a page" in refused.stderr


def test_with_json_the_programs_output_goes_to_stderr_and_a_program_without_torch_is_told(
    tmp_path: Path,
) -> None:
    (tmp_path / "hello.py").write_text("import sys\nprint('hello', sys.argv)\n")
    with start(tmp_path, "--json", "-m", "hello", "-x", "--json") as process:
        out, err = process.communicate(timeout=60)
    record = json.loads(out)
    assert process.returncode == 0
    assert "'-x', '--json']" in err
    assert record["command"] == ["python", "-m", "hello", "-x", "--json"]
    assert record["step_ms"] is None
    assert record["verdict"].startswith("The program did not import torch")
    assert any("cProfile" in (row["remedy"] or "") for row in record["trust"])


def test_a_program_that_fails_before_it_imports_torch_is_sent_to_no_other_profiler(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import torch\ndef f(:\n")
    with start(tmp_path, "--json", "broken.py") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "SyntaxError" in err
    told = {row["what"]: row["remedy"] for row in json.loads(out)["trust"]}
    assert told["torch"] is None


def test_a_result_that_nobody_reads_does_not_keep_the_device(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("print('hello')\n")
    with start(tmp_path, "--json", "hello.py", "x" * 5000) as process:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        # As little as the kernel allows, so that the record does not fit.
        room = fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1)

        def is_full() -> bool:
            waiting = array.array("i", [0])
            fcntl.ioctl(pipe, termios.FIONREAD, waiting)
            return waiting[0] >= room

        until(is_full, "the record is being printed")
        with DeviceLock("cpu", False, folder=tmp_path / "locks"):
            assert process.poll() is None
        out, _ = process.communicate(timeout=60)
    assert json.loads(out)["command"][:2] == ["python", "hello.py"]


@pytest.mark.timeout(120)
def test_a_program_that_deletes_the_store_still_gets_a_record(tmp_path: Path) -> None:
    (tmp_path / "wipe.py").write_text(
        "import os, shutil, torch\ntorch.ones(2)\nshutil.rmtree('home')\nos.kill(os.getpid(), 9)\n"
    )
    with start(tmp_path, "wipe.py") as process:
        _, err = process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL
    (run,) = RunStore(tmp_path / "home").list()
    record = RunStore(tmp_path / "home").load(run.id)
    assert record["program"]["signal"] == "SIGKILL"
    assert record["verdict"].startswith("No step was seen; the program was ended by SIGKILL")
    assert "what had not been written is lost" in " ".join(err.split())


@pytest.mark.timeout(120)
def test_where_nothing_could_be_kept_no_report_is_named(tmp_path: Path) -> None:
    # A folder where the record should be, as no disk that is full can be had here.
    (tmp_path / "fills.py").write_text(
        "import pathlib\n"
        "(run,) = pathlib.Path('home/runs').iterdir()\n"
        "(run / 'record.json' / 'full').mkdir(parents=True)\n"
        "print('mine')\n"
    )
    with start(tmp_path, "fills.py") as process:
        out, err = process.communicate(timeout=100)
    assert (process.returncode, out) == (0, "mine\n")
    assert "the record could not be kept" in err
    assert "report.html" not in err
    assert "next:" not in err


def test_ctrl_c_ends_the_program_and_keeps_what_was_seen(tmp_path: Path) -> None:
    (tmp_path / "forever.py").write_text(
        "import torch\ntorch.set_num_threads(1)\nmodel = torch.nn.Linear(64, 64)\nx = torch.randn(256, 64)\n"
        "with torch.no_grad():\n    while True:\n        model(x).relu()\n"
    )
    with start(tmp_path, "--seconds", "0.2", "--warmup", "0", "forever.py", process_group=0) as process:
        assert process.stderr is not None
        stuck = threading.Timer(90, os.killpg, (process.pid, signal.SIGKILL))
        stuck.start()
        for line in process.stderr:
            if "with both" in line:
                break
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate()
        stuck.cancel()
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in err
    assert "forever.py:7" in err
    (run,) = RunStore(tmp_path / "home").list()
    record = RunStore(tmp_path / "home").load(run.id)
    assert record["steps_found_by"] == "operators that repeat"
    assert record["lines"][0]["line"] == 7


def test_ctrl_c_while_the_record_is_made_does_not_lose_it(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("raise SystemExit(3)\n")
    with start(tmp_path, "hello.py") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "reading what was seen" in line:
                process.send_signal(signal.SIGINT)
                break
        _, err = process.communicate(timeout=60)
    (run,) = RunStore(tmp_path / "home").list()
    assert RunStore(tmp_path / "home").load(run.id)["program"]["exit_code"] == 3
    assert process.returncode == 3
    assert "again to give up" in err


def test_a_program_whose_time_is_over_is_ended_with_124(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text("import time\ntime.sleep(600)\n")
    with start(tmp_path, "--timeout", "0.5", "wait.py") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 124
    assert "its time was over (--timeout)" in err


def test_an_existing_trace_is_read_without_running_anything(tmp_path: Path) -> None:
    made = Maker()
    for step in range(5):
        made.mark(f"ProfilerStep#{step}", 1000 * step, 1000)
        made.op("aten::mm", 1000 * step + 100, 700)
    made.write(tmp_path / "t.json")
    with start(tmp_path, "--trace", "t.json", "--out", "page") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "A step takes 1 ms, 70% of it computing." in out
    assert "which line of the program" in out
    assert {path.name for path in (tmp_path / "page").iterdir()} == {"report.html", "record.json"}
    with start(tmp_path, "--trace", "missing.json") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "there is no file missing.json" in err
    assert len(RunStore(tmp_path / "home").list()) == 1


@pytest.mark.parametrize(
    ("share", "code", "told"),
    [("10%", 1, "--fail-on 10%: Kernels are shorter than"), ("0.1", 1, "at least"), ("60%", 0, "")],
)
def test_findings_that_surely_gain_as_much_fail_where_that_is_asked_for(
    tmp_path: Path, share: str, code: int, told: str
) -> None:
    trace = Path(__file__).parents[1] / "diagnose" / "traces" / "train.json.gz"
    with start(tmp_path, "--trace", str(trace), "--fail-on", share) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert told in err if told else err == ""


@pytest.mark.parametrize(("ends", "code"), [("", 3), ("raise SystemExit(7)", 7)])
def test_no_step_to_look_at_does_not_pass_and_a_program_that_failed_has_its_own_code(
    tmp_path: Path, ends: str, code: int
) -> None:
    (tmp_path / "plain.py").write_text(f"print(1)\n{ends}\n")
    with start(tmp_path, "--fail-on", "10%", "plain.py") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "no step was seen" in err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "found no program"),
        (["--trace", "t.json", "x.py"], "found --trace and a program"),
        (["--seconds", "nan", "x.py"], "found --seconds nan"),
        (["--timeout", "0", "x.py"], "found --timeout 0"),
        (["--fail-on", "10", "x.py"], "found --fail-on 10"),
        (["--fail-on", "much", "x.py"], "found --fail-on much"),
        (["nowhere.py", "--json"], "there is no file nowhere.py"),
    ],
)
def test_wrong_use_is_said_before_anything_is_run(
    trackside: Trackside, home: Path, words: list[str], found: str
) -> None:
    done = trackside("profile", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert found in done.stderr
    assert not home.exists()


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (["train.py", "--json"], 0),
        (["--json", "train.py", "--json"], 1),
        (["--steps", "5", "train.py"], 2),
        (["--steps=5", "train.py"], 1),
        (["-m", "pkg.mod", "--steps", "5"], 2),
        (["-mpkg.mod", "--steps", "5"], 1),
        (["--json", "--", "-x.py"], 1),
        (["-", "a"], 0),
        (["--out"], 1),
    ],
)
def test_what_stands_before_the_programs_name_is_ours(words: list[str], own: int) -> None:
    assert min(len(words), own_arguments(words, ["--steps", "--out", "-m"])) == own


@pytest.mark.timeout(120)
def test_counters_where_nothing_ran_on_a_gpu_are_said_to_be_missing_and_nothing_runs_twice(
    tmp_path: Path,
) -> None:
    (tmp_path / "once.py").write_text(
        "import torch\nwith open('ran', 'a') as file:\n    file.write('x')\n"
        "for _ in range(3000):\n    torch.ones(8) + 1\n"
    )
    with start(tmp_path, "--json", "--seconds", "0.05", "--warmup", "0", "--counters", "once.py") as process:
        out, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    assert (tmp_path / "ran").read_text() == "x"
    record = json.loads(out)
    assert record["options"]["counters"] is True
    assert "none were read: no kernel ran on a GPU" in [
        one["effect"] for one in record["trust"] if one["what"] == "counters"
    ]
