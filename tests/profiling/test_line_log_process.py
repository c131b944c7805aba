"""What the line log does to the process it runs in, on each way to log lines."""

import subprocess
import sys

import pytest
from tests.profiling import line_behaviours
from tests.profiling.interpreters import INTERPRETERS, environment, interpreter

HELPERS = {"make_log", "work", "names", "logged", "state", "refused", "varied", "for_a_while"}
BEHAVIOURS = [
    name
    for name, value in vars(line_behaviours).items()
    if callable(value)
    and getattr(value, "__module__", None) == line_behaviours.__name__
    and name not in HELPERS
]


@pytest.mark.parametrize("which", INTERPRETERS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_behaviour(behaviour: str, which: str) -> None:
    command = [interpreter(which), "-m", "tests.profiling.line_behaviours", behaviour]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    if behaviour == "the_log_is_stopped_at_exit":
        assert done.stdout == "stopped at exit\n"


def test_the_log_brings_few_modules_and_none_from_elsewhere() -> None:
    ask = (
        "import sys, trackside; before = set(sys.modules); import trackside.profiling.line_log; "
        "print(*set(sys.modules) - before)"
    )
    command = [sys.executable, "-c", ask]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    brought = {name.partition(".")[0] for name in done.stdout.split()}
    assert brought - set(sys.stdlib_module_names) == {"trackside"}
    assert len(done.stdout.split()) < 60
