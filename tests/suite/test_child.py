"""Children of a suite: their documents, and their end with everything below them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes import alive, gone, until

from trackside.suite.child import Child

# A child with a child of its own, which ignores what the first one hears; and a grandchild in a session of
# its own. Their ids go to the file named.
FAMILY = """\
import os, signal, subprocess, sys, time
code = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (2, 15)]; time.sleep(600)"
below = [
    subprocess.Popen([sys.executable, "-c", code]),
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True),
]
with open(sys.argv[1] + ".part", "w") as file:
    file.write(" ".join(str(p.pid) for p in below))
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(600)
"""


def test_the_document_and_the_last_words_are_read() -> None:
    with Child(
        ["-c", "import sys; print('one\\n two \\x1b[31m', file=sys.stderr); print('{\"a\": 1}')"]
    ) as child:
        ended = child.wait(60)
    assert ended is not None
    assert (ended.code, ended.document, ended.error) == (0, {"a": 1}, None)


def test_the_last_line_is_fit_for_a_terminal() -> None:
    code = "import sys, time; print('one\\ntwo \\x1b[31m', file=sys.stderr, flush=True); time.sleep(60)"
    with Child(["-c", code]) as child:
        until(lambda: child.last_line().startswith("two"), "the child's words")
        assert child.last_line() == "two \\x1b[31m"


@pytest.mark.parametrize(
    "code", ["print('no json')", "import os; os.kill(os.getpid(), 9)", "raise SystemExit(7)"]
)
def test_a_child_without_a_document_is_an_error_with_its_end(code: str) -> None:
    with Child(["-c", code]) as child:
        ended = child.wait(60)
    assert ended is not None
    assert ended.error is not None
    assert ended.error["kind"] == "internal"


def test_an_error_document_is_passed_on() -> None:
    document = '{"error": {"kind": "device", "message": "m", "remedy": "r"}}'
    with Child(["-c", f"print('{document}'); raise SystemExit(3)"]) as child:
        ended = child.wait(60)
    assert ended is not None
    assert ended.error == {"kind": "device", "message": "m", "remedy": "r"}


def test_cancelling_ends_the_whole_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing here ends by itself, so the patience is all waiting.
    monkeypatch.setattr("trackside.suite.child._AFTERWARDS_S", 0.2)
    listed = tmp_path / "pids"
    child = Child(["-c", FAMILY, str(listed)])
    until(listed.exists, "the family")
    pids = [int(pid) for pid in listed.read_text().split()]
    assert all(map(alive, pids))
    child.cancel()
    until(lambda: gone([child.pid, *pids]), "the end of the family", 10)


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from trackside.suite.child import Child\n"
        "child = Child(['-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        os.kill(parent.pid, signal.SIGKILL)
    until(lambda: gone([pid]), "the end of the child", 10)
