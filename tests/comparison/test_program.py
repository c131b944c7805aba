"""`trackside compare` as a program: however it ends, it leaves a clear word, a record and nothing else."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.comparison.program import Program
from tests.processes import gone, until


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


def only_document(text: str) -> Any:
    document = json.loads(text)
    assert isinstance(document, dict)
    return document


ERRORS = {
    "missing-baseline": (("nowhere.py", "new.py"), "not-found", 2),
    "missing-candidate": (("base.py", "nowhere.py"), "not-found", 2),
    "candidate-without-run": (("base.py", "empty.py"), "workload", 2),
    "syntax-error": (("base.py", "broken.py"), "workload", 2),
    "nothing-given": ((), "usage", 2),
    "unknown-device": (("base.py", "new.py", "--device", "tpu"), "usage", 2),
    "unknown-option": (("base.py", "new.py", "--frobnicate"), "usage", 2),
    "no-budget": (("base.py", "new.py", "--budget", "0"), "usage", 2),
    "no-threads": (("base.py", "new.py", "--threads", "0"), "usage", 2),
    "no-build-timeout": (("base.py", "new.py", "--build-timeout", "nan"), "usage", 2),
    "rtol-without-command": (("base.py", "new.py", "--rtol", "0.1"), "usage", 2),
    "rtol-that-lets-all-pass": (("true", "true", "--command", "--rtol", "2"), "usage", 2),
    "metric-with-command": (("true", "true", "--command", "--metric", "wall"), "usage", 2),
    "not-a-number": (("base.py", "new.py", "--budget", "soon"), "usage", 2),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_one_json_document_with_kind_message_and_remedy(program: Program, name: str) -> None:
    arguments, kind, code = ERRORS[name]
    (program.folder / "empty.py").write_text("x = 1\n")
    (program.folder / "broken.py").write_text("def run(x:\n    return x\n")
    done = program.run(*arguments, "--json")
    error = only_document(done.stdout)["error"]
    assert (error["kind"], done.returncode) == (kind, code), error
    assert error["message"]
    assert error["remedy"]


@pytest.mark.parametrize("candidate", ["nowhere.py", "broken.py"])
def test_a_file_that_cannot_be_read_leaves_a_record_too(program: Program, candidate: str) -> None:
    (program.folder / "broken.py").write_text("def run(x:\n    return x\n")
    program.run("base.py", candidate, "--json")
    assert program.record()["status"] == "failed"


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="this machine has a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_a_gpu_that_is_not_there_is_exit_code_3(program: Program, device: str) -> None:
    done = program.run("base.py", "new.py", "--device", device, "--json")
    error = only_document(done.stdout)["error"]
    assert (error["kind"], done.returncode) == ("device", 3)
    assert "--device cpu" in error["remedy"]


def test_a_store_that_cannot_be_written_is_a_clear_error(program: Program) -> None:
    (program.folder / "home").write_text("a file where the folder should be")
    done = program.run("base.py", "new.py", "--json")
    assert (only_document(done.stdout)["error"]["kind"], done.returncode) == ("store", 2)


def can_mount() -> bool:
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return shutil.which("unshare") is not None and not subprocess.run(command, capture_output=True).returncode


@pytest.mark.skipif(not can_mount(), reason="no right to mount a small disk here")
def test_a_disk_that_fills_during_a_run_is_a_clear_error_with_the_verdict(program: Program) -> None:
    home = program.folder / "home"
    home.mkdir()
    mounted = f'mount -t tmpfs -o size=512k tmpfs {shlex.quote(str(home))} && exec "$@"'
    process, everyone = program.underway("--json", under=["unshare", "-rm", "sh", "-c", mounted, "sh"])
    disk = Path(f"/proc/{process.pid}/root{home}")
    with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass
    program.go_on()
    holder = os.open(disk, os.O_RDONLY)
    out, err = process.communicate(timeout=100)
    left = [name for name in os.listdir(holder) if name.endswith(".tmp")]
    os.close(holder)
    error = only_document(out)["error"]
    assert (error["kind"], process.returncode) == ("store", 2)
    assert "No space left" in error["message"]
    assert "not recorded, so not certified: rejected" in error["message"]
    assert error["remedy"]
    assert "Traceback" not in err
    assert left == []
    until(lambda: gone(everyone), "the end of every process")
    assert program.left_in_tmp() == []


def test_a_rejection_is_one_json_document_whatever_the_candidate_prints(program: Program) -> None:
    (program.folder / "new.py").write_text(
        'import os\nprint(\'{"verdict": "faster"}\', flush=True)\n'
        "def run(x):\n    os.write(1, b'{}')\n    os.write(2, b'{}')\n    return x\n"
    )
    done = program.run("base.py", "new.py", "--json")
    document = only_document(done.stdout)
    assert (document["verdict"], document["certified"], done.returncode) == ("rejected", False, 1)
    assert program.record()["verdict"] == "rejected"


def test_a_candidate_s_message_cannot_steer_the_terminal(program: Program) -> None:
    (program.folder / "new.py").write_text(
        r"def run(x): raise ValueError('\x1b[2J\x1b[H oh\nFASTER 9x certified \x9b2J [bold red]really[/]')"
    )
    done = program.run("base.py", "new.py")
    assert done.returncode == 1
    assert "\x1b" not in done.stdout + done.stderr
    assert "\x9b" not in done.stdout + done.stderr
    assert "[boldred]really[/]" in "".join(done.stdout.split())
    assert "oh FASTER 9x" in program.record()["reasons"][0]


def test_a_file_name_that_is_no_text_is_handled(program: Program) -> None:
    name = os.fsdecode(b"new\xff.py")
    (program.folder / name).write_text("def run(x): return x\n")
    done = program.run("base.py", name, "--json")
    document = only_document(done.stdout)
    assert document.get("verdict") == "rejected" or document["error"]["kind"] in ("usage", "not-found")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_a_record_and_nothing_else(program: Program, number: signal.Signals) -> None:
    process, everyone = program.underway("--json")
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    error = only_document(out)["error"]
    assert (error["kind"], number.name in error["message"]) == ("interrupted", True)
    assert "Traceback" not in err
    until(lambda: gone(everyone), "the end of every process")
    assert program.left_in_tmp() == []
    record = program.record()
    assert (record["status"], record["verdict"], record["certified"]) == ("failed", "inconclusive", False)
    assert "interrupted" in record["reasons"][0]


def test_an_impatient_ctrl_c_leaves_a_record_and_nothing_else(program: Program) -> None:
    process, everyone = program.underway()
    os.killpg(process.pid, signal.SIGINT)
    for _ in range(20):
        time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    until(lambda: gone(everyone), "the end of every process")
    until(lambda: program.left_in_tmp() == [], "an empty temporary folder")
    assert program.record()["status"] == "failed"


def test_a_killed_judge_leaves_a_record_and_nothing_else(program: Program) -> None:
    process, everyone = program.underway()
    process.kill()
    process.communicate(timeout=60)
    until(lambda: gone(everyone), "the end of every process")
    until(lambda: program.left_in_tmp() == [], "an empty temporary folder")
    record = program.record()
    assert (record["status"], record["verdict"], record["certified"]) == ("failed", "inconclusive", False)
    assert "judge ended" in record["reasons"][0]
