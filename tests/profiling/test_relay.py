"""Signals: the program gets each that it would have got, once, and the launcher ends as the program does."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.processes import alive, gone, until
from tests.profiling.launching import DRIVER, Started, Starter

# Says who it is, counts what comes, and ends when it is told to on its stdin.
COUNTING = """
import os, signal, sys
counts = {}
def count(number, frame):
    counts[number] = counts.get(number, 0) + 1
for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCONT"):
    signal.signal(getattr(signal, name), count)
print(os.getpid(), flush=True)
sys.stdin.readline()
print(dict(sorted(counts.items())))
"""
WAITING = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n"

SIGNALS = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2]


def settled(one: Started) -> None:
    """Give the launcher the time to pass a signal on, and for a second copy of it to be noticed."""
    time.sleep(0.3)
    assert one.process.stdin is not None
    one.process.stdin.write(b"\n")
    one.process.stdin.flush()


def test_a_signal_to_the_launcher_alone_reaches_the_program_once(started: Starter) -> None:
    one = started(COUNTING, stdin=subprocess.PIPE)
    one.line()
    for number in SIGNALS:
        one.process.send_signal(number)
    settled(one)
    assert one.end()[:2] == (0, f"{ {int(number): 1 for number in sorted(SIGNALS)} }\n")


def test_a_signal_to_the_whole_group_reaches_the_program_once(started: Starter) -> None:
    one = started(COUNTING, stdin=subprocess.PIPE)
    one.line()
    for number in SIGNALS:
        os.killpg(one.process.pid, number)
    settled(one)
    assert one.end()[:2] == (0, f"{ {int(number): 1 for number in sorted(SIGNALS)} }\n")


def test_a_signal_to_the_group_and_one_to_the_launcher_are_two(started: Starter) -> None:
    one = started(COUNTING, stdin=subprocess.PIPE)
    one.line()
    os.killpg(one.process.pid, signal.SIGTERM)
    time.sleep(0.3)
    one.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    os.killpg(one.process.pid, signal.SIGTERM)
    settled(one)
    assert one.end()[:2] == (0, "{15: 3}\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT])
def test_a_signal_that_ends_the_program_ends_the_launcher_too(
    started: Starter, number: signal.Signals
) -> None:
    one = started(WAITING)
    one.line()
    one.process.send_signal(number)
    code, _, report = one.end()
    assert (code, report["signal"], report["exit_code"], report["finished"]) == (-number, number, None, False)


def test_an_interrupt_is_pythons_own_with_its_traceback(started: Starter) -> None:
    one = started(WAITING, stderr=subprocess.PIPE)
    one.line()
    one.process.send_signal(signal.SIGINT)
    _, errors = one.process.communicate(timeout=60)
    assert one.process.returncode == -signal.SIGINT
    assert errors.decode().splitlines()[0] == "Traceback (most recent call last):"
    assert errors.decode().splitlines()[-1] == "KeyboardInterrupt"
    assert one.end()[2]["finished"]


def test_a_program_that_ends_in_order_on_sigterm_has_its_own_code(started: Starter) -> None:
    one = started("import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n" + WAITING)
    one.line()
    one.process.send_signal(signal.SIGTERM)
    code, _, report = one.end()
    assert (code, report["exit_code"], report["signal"], report["finished"]) == (5, 5, None, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGCHLD])
def test_what_was_ignored_is_ignored_in_the_program_too(started: Starter, number: signal.Signals) -> None:
    # As under nohup, or behind `&` in a script.
    one = started(
        f"import signal\nprint(signal.getsignal({int(number)}))\n",
        preexec_fn=lambda: signal.signal(number, signal.SIG_IGN),
    )
    assert one.end()[:2] == (0, "1\n")


def test_a_blocked_signal_is_blocked_in_the_program_too(started: Starter) -> None:
    one = started(
        "import signal\nprint([int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])])\n",
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1]),
    )
    assert sorted(eval(one.end()[1])) == [signal.SIGUSR1, signal.SIGTERM]


def test_a_killed_launcher_leaves_nothing(started: Starter) -> None:
    one = started(WAITING)
    program = int(one.line())
    below = [
        int(pid)
        for pid in Path(f"/proc/{one.process.pid}/task/{one.process.pid}/children").read_text().split()
    ]
    assert program in below
    assert len(below) == 2  # and the witness
    one.process.kill()
    until(lambda: gone(below), "the kernel ends what the launcher had started")


def test_a_program_that_is_stopped_and_goes_on_is_waited_for(started: Starter) -> None:
    one = started(COUNTING, stdin=subprocess.PIPE)
    program = int(one.line())
    os.kill(program, signal.SIGSTOP)
    until(lambda: _state(program) == "T", "the program is stopped")
    time.sleep(0.1)
    assert _state(one.process.pid) == "S"
    os.kill(program, signal.SIGCONT)
    settled(one)
    assert one.end()[:2] == (0, "{18: 1}\n")


# What a shell does for one job: a group of its own in the foreground, then Ctrl-Z, then `fg`.
SHELL = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen(sys.argv[1:], process_group=0)
os.tcsetpgrp(0, job.pid)
def wait():
    _, status = os.waitpid(job.pid, os.WUNTRACED)
    return "stopped" if os.WIFSTOPPED(status) else f"ended {os.waitstatus_to_exitcode(status)}"
said = wait()
os.tcsetpgrp(0, os.getpgid(0))
print("shell:", said, flush=True)
if said == "stopped":
    os.tcsetpgrp(0, job.pid)
    os.killpg(job.pid, signal.SIGCONT)
    said = wait()
    os.tcsetpgrp(0, os.getpgid(0))
    print("shell:", said, flush=True)
job.returncode = 0
"""
AT_A_TERMINAL = """
import os, signal, sys
counts = []
signal.signal(signal.SIGINT, lambda *_: counts.append("int"))
signal.signal(signal.SIGCONT, lambda *_: counts.append("cont"))
print("ready", [os.isatty(n) for n in (0, 1, 2)], os.tcgetpgrp(0) == os.getpgid(0), flush=True)
while (line := input()) != "end":
    pass
print("counted", counts)
"""


class Terminal:
    """A shell with one job, at a terminal of its own."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.pid, self.screen = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execv(sys.executable, [sys.executable, "-c", SHELL, *command])
        self.shown = ""

    def read_until(self, text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in self.shown:
            if not select.select([self.screen], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"waited in vain for {text!r}; found {self.shown!r}")
            self.shown += os.read(self.screen, 4096).decode()

    def type(self, keys: bytes) -> None:
        os.write(self.screen, keys)

    def close(self) -> None:
        os.close(self.screen)
        os.waitpid(self.pid, 0)


@pytest.mark.parametrize("profiled", [False, True], ids=["plain", "profiled"])
def test_the_keys_of_a_terminal_do_what_they_do(sources: Path, tmp_path: Path, profiled: bool) -> None:
    (tmp_path / "prog.py").write_text(AT_A_TERMINAL)
    told = f'{{"sources": "{sources}", "report": "{tmp_path}/report", "capture": "nothing", "options": []}}'
    terminal = Terminal([sys.executable, *([str(DRIVER), told] if profiled else []), "prog.py"], tmp_path)
    try:
        terminal.read_until("ready [True, True, True] True")
        terminal.type(b"\x03")
        time.sleep(0.3)
        terminal.type(b"\x1a")
        terminal.read_until("shell: stopped")
        time.sleep(0.3)
        terminal.type(b"more\nend\n")
        terminal.read_until("shell: ended 0")
        assert "counted ['int', 'cont']" in terminal.shown
    finally:
        terminal.close()


def _state(pid: int) -> str:
    assert alive(pid)
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
