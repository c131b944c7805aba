"""Passes on to the program what signals it would have got, each once, and tells the launcher of its end.

A signal that was sent to the launcher alone is passed on. One that its whole process group got (Ctrl-C at a
terminal, `kill -TERM -GROUP`, torchrun, Slurm, systemd) has reached the program already. To tell the two
apart there is a witness: a process in the same group that blocks all signals and says which it was sent.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from trackside.workload import sandbox

__all__ = ["Relay"]

_PASSED_ON = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGCONT,
)
# A sender that goes from process to process needs a moment to come to the witness. The program gets what is
# passed on later by as much.
_SETTLE_S = 0.02
# How long a signal that the witness saw, and the launcher has not yet taken, is taken for the same.
_SAME_S = 1.0
_ANSWER_S = 5.0


class Relay:
    """Takes signals while the `with` block lasts; in the main thread only, since Python has it so.

    A signal that was ignored before stays so, for the program too.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._mask: set[int] = set()
        self._witness: _Witness | None = None
        self._seen: dict[int, float] = {}
        self._stop_asked = -_SAME_S
        self._came, self._note = os.pipe()
        for end in (self._came, self._note):
            os.set_blocking(end, False)

    def __enter__(self) -> Relay:
        if threading.current_thread() is threading.main_thread():
            with self._held():
                with contextlib.suppress(OSError):  # no more processes
                    self._witness = _Witness()
                for number in (*_PASSED_ON, signal.SIGCHLD):
                    before = signal.getsignal(number)
                    # None: a handler that is not Python's, of whoever embeds us.
                    if before is None or (before is signal.SIG_IGN and number != signal.SIGCHLD):
                        continue
                    self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *exc: object) -> None:
        # First, while ends of processes are heard of whatever was so before.
        if self._witness is not None:
            self._witness.end()
        with self._held():
            for number, before in self._before.items():
                signal.signal(number, before)
            self._before.clear()
        os.close(self._came)
        os.close(self._note)

    def fileno(self) -> int:
        """Readable when a signal came."""
        return self._came

    @property
    def awake(self) -> bool:
        """Whether the end of a child makes this readable."""
        return signal.SIGCHLD in self._before

    @contextlib.contextmanager
    def starting(self) -> Iterator[Callable[[], None]]:
        """For the block that starts the program: what the new process must call between fork and exec.

        Signals wait meanwhile: one that came to the new process before exec would be taken by a handler that
        is about to vanish.
        """
        launcher = os.getpid()

        def prepare() -> None:
            sandbox.die_with_parent()
            if os.getppid() != launcher:
                os._exit(1)
            for number, before in self._before.items():
                signal.signal(number, before if before is signal.SIG_IGN else signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

        with self._held(), _forking():
            yield prepare

    def pass_on(self, pid: int) -> None:
        """Give the process what came for it since the last time."""
        if not (came := self._taken()):
            return
        time.sleep(_SETTLE_S)
        came |= self._taken()
        if signal.SIGCONT in came:
            # The kernel drops a stop that is followed by this.
            came.discard(signal.SIGTSTP)
        now = time.monotonic()
        self._seen = {number: at for number, at in self._seen.items() if now - at < _SAME_S}
        group = None if self._witness is None else self._witness.saw()
        self._seen.update(dict.fromkeys(group or (), now))
        for number in sorted(came):
            if number == signal.SIGTSTP:
                self._stop_asked = now
            # Without the witness: a terminal, from which SIGINT comes as a rule, sends it to all.
            known = number == signal.SIGINT if group is None else self._seen.pop(number, None) is not None
            if not known:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)

    def stopped(self, number: int) -> None:
        """The program was stopped: where that was by Ctrl-Z, stop too, since the shell looks at us.

        Returns when the shell has us go on.
        """
        if number == signal.SIGTSTP and time.monotonic() - self._stop_asked < _SAME_S:
            self._stop_asked = -_SAME_S
            os.kill(os.getpid(), signal.SIGSTOP)

    def _take(self, number: int, frame: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._note, bytes([number]))

    def _taken(self) -> set[int]:
        try:
            return set(os.read(self._came, 65536)) - {signal.SIGCHLD}
        except BlockingIOError:
            return set()

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Let signals wait."""
        self._mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD}))
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


class _Witness:
    """A process in our group that never takes a signal, and says which it has been sent."""

    def __init__(self) -> None:
        question, self._ask = os.pipe()
        self._hear, answer = os.pipe()
        launcher = os.getpid()
        with _forking():
            self._pid = os.fork()
        if self._pid == 0:
            try:
                _stand_by(question, answer, launcher)
            finally:
                os._exit(0)
        os.close(question)
        os.close(answer)

    def saw(self) -> set[int] | None:
        """The signals that came to it since the last time; None where it is gone."""
        try:
            os.write(self._ask, b"?")
            if select.select([self._hear], [], [], _ANSWER_S)[0] and (said := os.read(self._hear, 256)):
                return set(said) - {0}
        except OSError:
            pass
        return None

    def end(self) -> None:
        # Still ours and not waited for, so the number is its own.
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._ask)
        os.close(self._hear)


def _stand_by(question: int, answer: int, launcher: int) -> None:
    sandbox.die_with_parent()
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    if os.getppid() != launcher:
        return
    sandbox.close_other_descriptors((question, answer))
    for standard in {0, 1, 2} - {question, answer}:
        with contextlib.suppress(OSError):
            os.close(standard)
    while os.read(question, 1):
        saw = signal.sigpending()
        for number in saw:
            signal.sigtimedwait({number}, 0)
        # A zero, so that nothing is said too.
        os.write(answer, bytes([0, *saw]))


@contextlib.contextmanager
def _forking() -> Iterator[None]:
    """From 3.12 on Python warns of a fork beside threads; what is done in these children needs none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
