"""How the program ends when it is interrupted, or when nobody reads what it says."""

import json
import os
import signal
import subprocess
import sys

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
