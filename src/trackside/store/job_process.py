"""The process between a job's owner and its verb: it starts the verb, ends it and all below it, and says how.

It adopts what the verb's processes leave behind, so nothing below it can get away; it ends the verb when its
owner is gone, and the kernel ends the verb when this process is.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from trackside.records.errors import printable
from trackside.store.files import read_json, write_json
from trackside.store.job_files import (
    CANCEL_FILE,
    JOB_FILE,
    LOG_FILE,
    RUNNER_FILE,
    STDOUT_FILE,
    JobState,
    answer_in,
    log_lines,
    now,
    write_end,
)
from trackside.store.job_note import JOB_VARIABLE
from trackside.store.runs import process_mark

__all__ = ["end_marked", "main", "marked"]

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36

# How often to look after what no signal tells of: an owner that died while a fork of it holds our pipe, and a
# log that grows. Seldom, since a measurement may be under way.
_TICK_S: Final = 1.0
# A verb that passed the first SIGTERM on to its program takes the next one as meant for itself.
_AGAIN_S: Final = 1.0
# A verb that ends in order has ended what it started, but for helpers that go a moment later. Of one that was
# killed the supervisor is left: it puts files back and writes down that the run was broken off.
_LEFT_S: Final = 0.5
_LEFT_BY_KILLED_S: Final = 3.0
_IN_ORDER: Final = (-signal.SIGTERM, -signal.SIGINT)
_KILL_S: Final = 10.0
_PAUSE_S: Final = 0.01
# Readings of /proc without a process of ours that mean there is none: one that forks and ends can be missed.
_CALM_READINGS: Final = 3
# A program that is profiled writes to the log too. When it is past the first, the end of it is kept.
_LOG_BYTES: Final = 16 << 20
_LOG_KEPT_BYTES: Final = 1 << 20

_EXIT_INTERRUPTED: Final = 130

_libc = ctypes.CDLL(None, use_errno=True)


def main(argv: list[str]) -> None:
    """Runs the verb with its arguments, `argv[1:]`, as the job in the folder `argv[0]`.

    Stdin is a pipe that ends when the owner does; by stdout it knows that we are up.
    """
    folder = Path(argv[0])
    runner = _Runner(folder, argv[1:], read_json(folder / JOB_FILE))
    write_json(
        folder / RUNNER_FILE, {"pid": os.getpid(), "process": process_mark(os.getpid()), "started": now()}
    )
    with suppress(OSError):
        os.write(1, b"!")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    write_end(folder, *runner.run())


class _Runner:
    def __init__(self, folder: Path, words: list[str], facts: dict[str, Any]) -> None:
        self.folder, self.words = folder, words
        self.owner, self.grace_s = facts["owner"], float(facts["grace_s"])
        self.why: JobState | None = None
        self.reason = ""
        self._asked = False
        self._came, note = os.pipe()
        for end in (self._came, note):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(note, warn_on_full_buffer=False)
        # Handlers that do nothing, and not SIG_IGN, which the verb would inherit.
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self._ask)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def run(self) -> tuple[JobState, int | None, str | None]:
        """From start to end: how the job ended, with which exit code, and why."""
        self._look_for_reasons(0.0)
        if self.why is not None:
            return self.why, None, self.reason
        try:
            verb = self._start()
        except (OSError, subprocess.SubprocessError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            return "failed", None, printable(f"it could not be started: {why}")
        code = self._wait(verb)
        left = _end_rest(_LEFT_S if code >= 0 or code in _IN_ORDER else _LEFT_BY_KILLED_S)
        state, reason = self._judged(code)
        if left:
            beside = f"{len(left)} processes could not be ended: {', '.join(map(str, left[:5]))}"
            reason = f"{reason}; {beside}" if reason else beside
        return state, code, reason

    def _start(self) -> subprocess.Popen[bytes]:
        runner = os.getpid()
        # Not by `-m`, which looks in the working directory first, nor with -P, which a program that is
        # profiled would inherit. __main__ takes the folder that this puts first away again.
        package = Path(__file__).resolve().parent.parent
        command = [sys.executable, str(package / "__main__.py"), *self.words]

        def prepare() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != runner:
                os._exit(1)
            os.environ[JOB_VARIABLE] = f"{os.getpid()}:{self.folder}"

        with (self.folder / STDOUT_FILE).open("ab") as answer, (self.folder / LOG_FILE).open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=log,
                start_new_session=True,
                preexec_fn=prepare,
            )

    def _wait(self, verb: subprocess.Popen[bytes]) -> int:
        """The verb's exit code, once it has ended, by itself or by us."""
        last_call = next_call = 0.0
        while True:
            self._look_for_reasons(_TICK_S)
            if (status := _reaped().get(verb.pid)) is not None:
                # It has been waited for; Popen must not.
                verb.returncode = os.waitstatus_to_exitcode(status)
                return verb.returncode
            _cut(self.folder / LOG_FILE)
            if self.why is None:
                continue
            moment = time.monotonic()
            if not last_call:
                last_call, next_call = moment + self.grace_s, moment
            if moment >= last_call:
                os.kill(verb.pid, signal.SIGKILL)
            elif moment >= next_call:
                next_call = moment + _AGAIN_S
                os.kill(verb.pid, signal.SIGTERM)
                # One that is stopped would not hear it.
                os.kill(verb.pid, signal.SIGCONT)

    def _look_for_reasons(self, seconds: float) -> None:
        """Waits for something to happen; `why` says whether the job is to end."""
        watched = [self._came] if self.why is not None else [self._came, 0]
        with suppress(InterruptedError):
            ready = select.select(watched, [], [], seconds)[0]
            with suppress(BlockingIOError):
                os.read(self._came, 4096)
            if self.why is None and 0 in ready and not os.read(0, 1):
                self.why, self.reason = "interrupted", "the process that started it ended"
        if self.why is not None:
            return
        if (self.folder / CANCEL_FILE).exists():
            self.why, self.reason = "cancelled", _who_cancelled(self.folder)
        elif self._asked:
            self.why, self.reason = "interrupted", "SIGTERM came"
        elif process_mark(self.owner["pid"]) != self.owner["process"]:
            self.why, self.reason = "interrupted", "the process that started it ended"

    def _ask(self, number: int, frame: object) -> None:
        self._asked = True

    def _judged(self, code: int) -> tuple[JobState, str | None]:
        if self.why is not None:
            return self.why, self.reason
        answer = answer_in(self.folder)
        error = answer.get("error") if answer is not None else None
        if isinstance(error, dict) and "kind" in error:
            return "failed", printable(str(error.get("message")))
        # Not by the exit code, which `profile` takes from its program.
        if answer is not None and code != _EXIT_INTERRUPTED:
            return "done", None
        how = f"signal {-code} ended it" if code < 0 else f"it ended with exit code {code}"
        if code == -signal.SIGKILL:
            how += ", as the kernel does where memory runs out"
        said = log_lines(self.folder, 1)
        return "failed", f"{how} and no answer" + (f"; last words: {said[0]}" if said else "")


def _end_rest(patience_s: float) -> list[int]:
    """Ends all that the verb left, once it has had its time; returns those that could not be."""
    patience = time.monotonic() + patience_s
    deadline = patience + _KILL_S
    calm = 0
    while calm < _CALM_READINGS:
        _reaped()
        left = _below(os.getpid())
        calm = 0 if left else calm + 1
        if time.monotonic() > deadline:
            return left
        if time.monotonic() > patience:
            _kill(left)
        time.sleep(_PAUSE_S)
    return []


def marked(folder: Path) -> list[int]:
    """Processes that carry the mark of a job, wherever they went; not this one, nor those above it."""
    ending = b":" + os.fsencode(folder)
    found = []
    for pid in _processes():
        with suppress(OSError):
            given = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if any(e.startswith(JOB_VARIABLE.encode() + b"=") and e.endswith(ending) for e in given):
                found.append(pid)
    return [pid for pid in found if pid not in _above(os.getpid())]


def end_marked(folder: Path) -> list[int]:
    """Ends what still carries the mark of a job whose runner is gone; returns what could not be ended.

    The kernel has ended the verb with the runner: first its supervisor has its time, as after any kill.
    """
    patience = time.monotonic() + _LEFT_BY_KILLED_S
    deadline = patience + _KILL_S
    calm = 0
    while calm < _CALM_READINGS:
        left = marked(folder)
        calm = 0 if left else calm + 1
        if time.monotonic() > deadline:
            return left
        if time.monotonic() > patience:
            _kill(left)
        time.sleep(_PAUSE_S)
    return []


def _who_cancelled(folder: Path) -> str:
    with suppress(Exception):
        return printable(str(read_json(folder / CANCEL_FILE)["why"]))
    return "it was cancelled"


def _reaped() -> dict[int, int]:
    """Children, adopted ones too, that have ended since the last time, and their status."""
    ended = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    return ended


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _parent(pid: int) -> int | None:
    try:
        # Field 2 is the program's name in parentheses: any bytes, also blanks and parentheses.
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _below(root: int) -> list[int]:
    children: dict[int | None, list[int]] = {}
    for pid in _processes():
        children.setdefault(_parent(pid), []).append(pid)
    found, at = [root], 0
    while at < len(found):
        found += children.get(found[at], [])
        at += 1
    return found[1:]


def _above(pid: int) -> set[int]:
    found = {pid}
    while (pid := _parent(pid) or 0) and pid not in found:
        found.add(pid)
    return found


def _cut(log: Path) -> None:
    with suppress(OSError):
        if log.stat().st_size <= _LOG_BYTES:
            return
        with log.open("rb+") as file:
            file.seek(-_LOG_KEPT_BYTES, os.SEEK_END)
            kept = file.read()
            # Those who write to it append, so they go on behind this; a line written just now may be lost.
            file.seek(0)
            file.truncate()
            file.write(b"[the log grew past 16 MB; this is its end]\n" + kept[kept.find(b"\n") + 1 :])


if __name__ == "__main__":
    main(sys.argv[1:])
