"""How the program ends when it is interrupted, or when what it says cannot be written."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# A verb that says when it is at work, and waits.
WAITING = (
    "import sys, types, time\n"
    "from trackside.cli import main as cli; from trackside.cli.terminal import JsonOption, verb_app\n"
    "def planted(as_json: JsonOption = False):\n"
    "    print('ready', file=sys.stderr, flush=True)\n    time.sleep(60)\n"
    "module = types.ModuleType('planted'); module.app = verb_app(); module.app.command()(planted)\n"
    "sys.modules['trackside.cli.planted'] = module; cli.VERBS['planted'] = ''\n"
    "sys.exit(cli.main(['planted', '--json']))\n"
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_with_json_is_one_document_and_130(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(number)
        out, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")
    error = json.loads(out)["error"]
    assert error["kind"] == "interrupted"
    assert number.name in error["message"]
    assert "trackside runs list" in error["remedy"]


def test_a_sigterm_that_was_ignored_before_stays_ignored() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN)\n" + WAITING],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert "SIGINT" in json.loads(out)["error"]["message"]


@pytest.mark.parametrize("arguments", [["nonsense", "--json"], ["runs", "show", "z-1", "--json"]])
def test_an_error_that_nobody_reads_ends_as_any_other_output(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "trackside", *arguments],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


VERBS = [
    *(["machine"], ["doctor", "--all", "--family", "os"], ["gpus"]),
    *(["handbook", "list"], ["handbook", "search", "memory"]),
]


def start(arguments: list[str], redirection: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """The real program behind a shell, which can close and redirect what Python's subprocess cannot."""
    command = shlex.join([sys.executable, "-m", "trackside", *arguments])
    plain = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "check": False}
    return subprocess.run(["sh", "-c", f"{command} {redirection}"], **plain | options)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_a_reader_that_hangs_up_ends_every_verb_as_the_signal_would(
    arguments: list[str], form: list[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = start([*arguments, *form], stdout=writing)
    os.close(writing)
    # Not 1, which would say that something is wrong with the machine.
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize(
    ("redirection", "why"),
    [
        ("> /dev/full", "No space left on device"),
        (">&-", "stdout is closed"),
        ("1< /dev/null", "Bad file descriptor"),
    ],
)
@pytest.mark.parametrize(
    "arguments", [["machine"], ["handbook", "list"], ["--help"], ["nonsense"]], ids=" ".join
)
def test_results_that_cannot_be_written_are_one_error_on_stderr_and_2(
    arguments: list[str], redirection: str, why: str, form: list[str]
) -> None:
    if arguments == ["nonsense"] and not form and redirection != ">&-":
        pytest.skip("has nothing to say on stdout")
    done = start([*arguments, *form], redirection)
    error, remedy = done.stderr.splitlines()
    assert (done.returncode, error) == (2, f"error: cannot write the results: {why}")
    assert remedy.startswith("remedy: ")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("redirection", ["2> /dev/full", "2>&-"])
def test_remarks_that_nobody_gets_do_not_change_the_results(redirection: str, tmp_path: Path) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text("zephyr")
    done = start(["handbook", "add", "a.md", "b.md", "--json"], redirection, cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["added"]) == (0, 2)
    assert start(["nonsense"], redirection).returncode == 2


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("arguments", [["machine"], ["handbook", "search", "memory"], ["doctor", "--all"]])
def test_a_terminal_without_the_signs_gets_escapes_in_their_place(arguments: list[str]) -> None:
    done = start(arguments, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode in (0, 1), done.stderr) == (True, "")
    assert done.stdout.isascii()
    if arguments[0] == "doctor":
        # A sign that is replaced by another would say something else.
        assert "\\u2713" in done.stdout


def test_an_interrupt_does_not_write_twice_what_was_written() -> None:
    program = WAITING.replace("print('ready', file=sys.stderr, flush=True)", "print('ready', flush=True)")
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=30)
        assert json.loads(out)["error"]["kind"] == "interrupted"
