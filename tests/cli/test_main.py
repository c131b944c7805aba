"""The command line's frame: help without heavy imports, and an output and exit code for every way to end."""

import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import trackside as package
from trackside.cli import main as cli
from trackside.cli.terminal import JsonOption, verb_app
from trackside.records.errors import TracksideError

HEAVY = ("torch", "pydantic", "numpy", "rich", "psutil")

Plant = Callable[[Callable[..., int | None]], None]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Adds a verb `planted`, by the convention that cli/main.py states."""

    def add(function: Callable[..., int | None]) -> None:
        module = types.ModuleType("trackside.cli.planted")
        module.app = verb_app()  # type: ignore[attr-defined]
        module.app.command()(function)
        monkeypatch.setitem(sys.modules, "trackside.cli.planted", module)
        monkeypatch.setitem(cli.VERBS, "planted", "A verb of this test.")

    return add


@pytest.mark.parametrize("arguments", [["--help"], *([verb, "--help"] for verb in cli.VERBS)])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys; from trackside.cli.main import main; main(sys.argv[1:])\n"
        f"print('heavy:', [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("heavy: []\n")


def test_every_verb_is_in_the_help_with_its_line(
    trackside: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = trackside("--help")
    assert (done.returncode, done.stderr) == (0, "")
    shown = " ".join(done.stdout.split())
    for verb, line in cli.VERBS.items():
        assert f"{verb} {line}" in shown


def test_no_arguments_show_the_help_and_count_as_wrong_use(
    trackside: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = trackside()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == trackside("--help").stdout


def test_version_is_the_packages(trackside: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert trackside("--version").stdout == f"trackside {package.__version__}\n"


def test_the_console_script_is_the_same_program(
    trackside: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    script = Path(sys.executable).with_name("trackside")
    if not script.exists():
        pytest.skip("the package runs from its source tree here, not installed")
    done = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout == trackside("--help").stdout


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["runs", "list", "--nonsense"], ["runs", "list", "--limit", "x"], ["runs"]]
)
def test_wrong_use_is_2_with_a_remedy_on_stderr(
    trackside: Callable[..., subprocess.CompletedProcess[str]], arguments: list[str]
) -> None:
    done = trackside(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    error, remedy = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert remedy.startswith("remedy: see `trackside")


@pytest.mark.parametrize(
    "arguments", [["nonsense", "--json"], ["--json"], ["runs", "list", "--json", "--limit", "x"]]
)
def test_wrong_use_with_json_is_one_json_document(
    trackside: Callable[..., subprocess.CompletedProcess[str]], arguments: list[str]
) -> None:
    done = trackside(*arguments)
    assert (done.returncode, done.stderr) == (2, "")
    error = json.loads(done.stdout)["error"]
    assert set(error) == {"kind", "message", "remedy"}
    assert error["kind"] == "usage"


def test_a_misspelt_verb_is_answered_with_the_right_one(
    trackside: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    assert "compare" in trackside("compar").stderr.splitlines()[0]


def test_a_verbs_number_is_the_exit_code(plant: Plant) -> None:
    plant(lambda: 4)
    assert cli.main(["planted"]) == 4


def test_a_verb_that_returns_nothing_succeeds(plant: Plant) -> None:
    plant(lambda: None)
    assert cli.main(["planted"]) == 0


def test_json_of_a_program_behind_two_dashes_is_not_ours(
    plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    def planted(command: list[str]) -> None:
        raise TracksideError("timeout", f"ran {command}", "wait")

    plant(planted)
    assert cli.main(["planted", "--", "prog", "--json"]) == 124
    assert capsys.readouterr() == ("", "error: ran ['prog', '--json']\nremedy: wait\n")


def test_an_error_is_told_on_stderr_and_gives_its_code(
    plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    def planted() -> None:
        raise TracksideError("device", "the [bold] GPU fell off the bus", "reboot")

    plant(planted)
    assert cli.main(["planted"]) == 3
    assert capsys.readouterr() == ("", "error: the [bold] GPU fell off the bus\nremedy: reboot\n")


def test_an_error_with_json_is_one_document(plant: Plant, capsys: pytest.CaptureFixture[str]) -> None:
    def planted(as_json: JsonOption = False) -> None:
        raise TracksideError("device", "m", "r")

    plant(planted)
    assert cli.main(["planted", "--json"]) == 3
    out, err = capsys.readouterr()
    assert (json.loads(out), err) == ({"error": {"kind": "device", "message": "m", "remedy": "r"}}, "")


def test_a_defect_is_2_not_the_code_of_a_failed_claim(
    plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    def planted(as_json: JsonOption = False) -> None:
        raise ZeroDivisionError("oh")

    plant(planted)
    assert cli.main(["planted", "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["kind"] == "internal"
    assert "Traceback" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_130_with_one_line(number: signal.Signals) -> None:
    program = (
        "import sys, types, time\n"
        "from trackside.cli import main as cli; from trackside.cli.terminal import verb_app\n"
        "def planted():\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "module = types.ModuleType('planted'); module.app = verb_app(); module.app.command()(planted)\n"
        "sys.modules['trackside.cli.planted'] = module; cli.VERBS['planted'] = ''\n"
        "sys.exit(cli.main(['planted']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "interrupted\n")


def test_a_reader_that_hangs_up_gets_no_traceback(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "trackside", "--help"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_pipe_that_breaks_inside_a_verb_is_a_defect(
    plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    def planted() -> None:
        raise BrokenPipeError(32, "worker gone")

    plant(planted)
    assert cli.main(["planted"]) == 2
    assert "worker gone" in capsys.readouterr().err
