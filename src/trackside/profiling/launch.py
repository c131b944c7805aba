"""Runs a program in a child process with a capture inside, and waits for it as its shell would.

The child is what `python train.py a b` would be: same interpreter, directory, environment, terminal, process
group and open files. What differs, and cannot be helped: its parent is this process, and it dies with it;
`/proc/PID/environ` shows two variables by which we came in; `sys.modules` has some built-in modules more;
`python -v` and `-X importtime` show what we imported.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trackside.profiling.inside import MAX_MESSAGE_BYTES
from trackside.profiling.program import Program, interpreter_options
from trackside.profiling.relay import Relay
from trackside.records.errors import TracksideError, printable
from trackside.workload.supervisor import descendants, stat_fields

__all__ = ["Ended", "end_as", "launch"]

GRACE_S = 10.0
"""How long a program that ran past its limit has between SIGTERM and SIGKILL: time to write a checkpoint."""
# How often to look whether the child has ended where no signal can tell, and how often where one does.
_TICK_S, _SLOW_TICK_S = 0.05, 1.0
# What our start-up folder and the hand-over folder are known by inside; see startup/sitecustomize.py.
_STARTUP = Path(__file__).resolve().parent / "startup"
_VARIABLE = "TRACKSIDE_INSIDE"
# What Python sets LC_CTYPE to where it finds the C locale (PEP 538).
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")


@dataclass(frozen=True)
class Ended:
    """How a program ended, and whether our part in it did."""

    exit_code: int | None
    """None where a signal ended it."""
    signal: int | None
    seconds: float
    """From its start to its end, ours included."""
    timed_out: bool
    """Whether it was ended because it ran past the limit."""
    begun: bool
    """Whether the capture began. If not, the program ran without it; `trouble` says why, if known."""
    finished: bool
    """Whether the capture was ended in order, and not by a signal, `os._exit` or `exec`."""
    trouble: str | None
    lost: int
    """Messages that found the pipe full."""
    garbled: int
    """Lines on the pipe that our code never writes."""


def launch(
    program: Program,
    capture: str,
    configuration: Mapping[str, Any],
    folder: Path,
    *,
    on_message: Callable[[dict[str, Any]], None] = lambda message: None,
    stdout: int | None = None,
    seconds: float | None = None,
    grace: float = GRACE_S,
    options: Sequence[str] | None = None,
    under: Sequence[str] = (),
) -> Ended:
    """Run a program to its end.

    To be called in the main thread, where signals can be passed on; the program is killed when the thread
    that called this ends.

    Args:
        capture: `module:function` of ours, called in the program's process with an `inside.Setting` before
            the program's first line; what it returns is a context manager around the program.
        configuration: what the capture is told: numbers, texts, None, in lists and dicts.
        folder: where its results go.
        on_message: gets every message of the capture as it comes.
        stdout: the descriptor to use as the program's stdout, in place of ours.
        seconds: after so many the program is sent SIGTERM, and killed after `grace` more, with all below it.
        options: the interpreter's; if left out, those that this process was started with.
        under: words to begin the command line with, of a tool that starts what follows them.

    Raises:
        TracksideError: if it cannot be started, or not with a capture inside.
    """
    if sys.platform != "linux":
        raise TracksideError("unsupported", f"profile needs Linux, found {sys.platform}", "run it on Linux")
    command = [*under, *program.command(interpreter_options() if options is None else options)]
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    handed = {"capture": capture, "configuration": dict(configuration), "folder": str(folder.absolute())}
    with _hand_over(handed) as place, _Heard(place / "messages", on_message) as heard, Relay() as relay:
        began = time.monotonic()
        with relay.starting() as prepare:
            environment = _environment(place, "tool" if under else str(os.getpid()))
            process = _start(command, environment, stdout, prepare)
        limit = _Limit(process.pid, None if seconds is None else began + seconds, grace)
        try:
            status = _wait(process.pid, relay, heard, limit)
        except BaseException:
            # A defect of ours: nobody is left who would wait for it.
            _kill(process.pid, descendants(process.pid))
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, 0)
            raise
        finally:
            # It has been waited for; Popen must not.
            process.returncode = 0
        ended = time.monotonic()
        heard.read()
        code = os.waitstatus_to_exitcode(status)
        return Ended(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            seconds=ended - began,
            timed_out=limit.reached,
            begun=heard.begun,
            finished=heard.finished,
            trouble=_trouble(place),
            lost=max(0, heard.last - heard.count),
            garbled=heard.garbled + (1 if heard.rest else 0),
        )


def end_as(ended: Ended) -> int:
    """End this process by the signal that ended the program; where none did, the exit code to return."""
    if ended.signal is None:
        return ended.exit_code or 0
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    # The program's own core file, if there is one, stays.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError):  # SIGKILL cannot be set, and need not
        signal.signal(ended.signal, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ended.signal})
    os.kill(os.getpid(), ended.signal)
    # The first process of a container is deaf to what it does not handle: what a shell would return.
    return 128 + ended.signal


@contextlib.contextmanager
def _hand_over(handed: dict[str, Any]) -> Iterator[Path]:
    """A folder with what the capture is told, and the pipe on which it answers.

    marshal, since that is built in, and read by the same interpreter.
    """
    try:
        made = tempfile.TemporaryDirectory(prefix="trackside-", ignore_cleanup_errors=True)
        place = Path(made.name)
        (place / "configuration").write_bytes(marshal.dumps(handed))
        os.mkfifo(place / "messages", 0o600)
    except OSError as error:
        raise TracksideError(
            "unsupported",
            printable(f"cannot make a temporary folder with a pipe in it: {error}"),
            "set TMPDIR to a folder on a local disk that you can write to",
        ) from error
    with made:
        yield place


def _start(
    command: list[str], environment: dict[str, str], stdout: int | None, prepare: Callable[[], None]
) -> subprocess.Popen[bytes]:
    try:
        # close_fds: what a shell opened for the program is the program's; ours close by themselves.
        return subprocess.Popen(command, env=environment, stdout=stdout, close_fds=False, preexec_fn=prepare)
    except OSError as error:
        raise TracksideError(
            "unsupported",
            printable(f"cannot start {command[0]}: {error.strerror}"),
            "run trackside with an interpreter that can be started again",
        ) from error


def _environment(handed_over: Path, parent: str) -> dict[str, str]:
    """Ours, as it was before Python changed it, with the way in for us."""
    plain = dict(os.environ)
    if plain.get("LC_CTYPE") in _COERCED:
        with contextlib.suppress(OSError):
            given = Path("/proc/self/environ").read_bytes().split(b"\0")
            if not any(entry.startswith(b"LC_CTYPE=") for entry in given):
                del plain["LC_CTYPE"]
    if os.pathsep in str(_STARTUP):
        raise TracksideError(
            "unsupported",
            printable(
                f"trackside lies in {_STARTUP}, and PYTHONPATH cannot name a folder with {os.pathsep!r}"
            ),
            "install it elsewhere",
        )
    before = plain.get("PYTHONPATH")
    plain["PYTHONPATH"] = str(_STARTUP) if before is None else f"{_STARTUP}{os.pathsep}{before}"
    plain[_VARIABLE] = f"{parent}:{handed_over}"
    return plain


def _wait(pid: int, relay: Relay, heard: _Heard, limit: _Limit) -> int:
    """The status with which the process ended."""
    poll = select.poll()
    poll.register(relay, select.POLLIN)
    poll.register(heard, select.POLLIN)
    while True:
        relay.pass_on(pid)
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if found and not os.WIFSTOPPED(status):
            limit.end_left()
            return status
        if found:
            relay.stopped(os.WSTOPSIG(status))
            continue
        tick = limit.next(_SLOW_TICK_S if relay.awake else _TICK_S)
        poll.poll(1000 * tick)
        heard.read()


@dataclass
class _Limit:
    """The time that a program has, and what is done when it is over."""

    pid: int
    deadline: float | None
    grace: float
    reached: bool = False
    below: dict[int, bytes] = field(default_factory=dict)
    """Processes below it when its time was over, each with the moment of its start: numbers come again."""

    def next(self, most: float) -> float:
        """Do what is due; seconds until something is again."""
        if self.deadline is None:
            return most
        left = self.deadline - time.monotonic()
        if left > 0:
            if self.reached:
                self._look()
            return min(left, most)
        if not self.reached:
            self.reached = True
            self.deadline += self.grace
            self._look()
            os.kill(self.pid, signal.SIGTERM)
            # One that is stopped would not hear it.
            os.kill(self.pid, signal.SIGCONT)
        else:
            self.deadline = None
            self._look()
            _kill(self.pid, self._same())
        return 0.0

    def end_left(self) -> None:
        """What it started and did not end when its time was over ends too."""
        for pid in self._same():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _look(self) -> None:
        for pid in descendants(self.pid):
            with contextlib.suppress(OSError):
                self.below[pid] = stat_fields(pid)[19]

    def _same(self) -> list[int]:
        same = []
        for pid, started in self.below.items():
            with contextlib.suppress(OSError):
                if stat_fields(pid)[19] == started:
                    same.append(pid)
        return same


def _kill(pid: int, below: list[int]) -> None:
    """Kill a child of ours and what is below it; first all are stopped, so that none starts another."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for each in (pid, *below):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each, number)
        below = [*below, *(new for new in descendants(pid) if new not in below)]


class _Heard:
    """Our end of the pipe on which the capture speaks: reads what is there, keeps no more than one line."""

    def __init__(self, path: Path, on_message: Callable[[dict[str, Any]], None]) -> None:
        # For writing too: so it is never at its end, whoever may hold it.
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._on_message = on_message
        self.rest = b""
        self.begun = self.finished = False
        self.count = self.last = self.garbled = 0

    def __enter__(self) -> _Heard:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._pipe)

    def fileno(self) -> int:
        return self._pipe

    def read(self) -> None:
        # No more than the pipe holds: whoever fills it all the time does not keep us from the rest.
        try:
            read = os.read(self._pipe, 1 << 16)
        except BlockingIOError:
            return
        *lines, self.rest = (self.rest + read).split(b"\n")
        if len(self.rest) > MAX_MESSAGE_BYTES:
            self.rest = b""
            self.garbled += 1
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            kind, serial = message["kind"], message["serial"]
        except (ValueError, RecursionError, TypeError, KeyError):
            self.garbled += 1
            return
        if not isinstance(kind, str) or not isinstance(serial, int):
            self.garbled += 1
            return
        self.begun |= kind == "begun"
        self.finished |= kind == "finished"
        self.count += 1
        self.last = max(self.last, serial)
        self._on_message(message)


def _trouble(handed_over: Path) -> str | None:
    try:
        return (handed_over / "trouble").read_text(errors="backslashreplace").strip()
    except OSError:
        return None
