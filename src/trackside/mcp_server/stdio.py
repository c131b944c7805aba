"""The server over stdin and stdout: nothing but the protocol on stdout, from the first import to the exit."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from trackside.mcp_server.scope import Scope

__all__ = ["serve_stdio"]

_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2
# What a shell reports for a program that SIGINT ended, as every verb does.
_EXIT_INTERRUPTED: Final = 130
# What calls under way get to end in once the client is gone: a read from a dead network drive never does.
_FAREWELL_SECONDS: Final = 10.0


def serve_stdio(scope: Scope) -> None:
    """Serves one client until it closes stdin; what was started for it ends then."""
    with _stdout_elsewhere():
        # Inside: a package that prints when it is imported would break the first message.
        from trackside.mcp_server.server import build_server

        built = build_server(scope)
    _end_on_signals(built.jobs.close)
    over = threading.Event()
    _end_with_the_client(built.jobs.close, over)
    try:
        # While it serves, the SDK itself keeps what others write to stdout away from the client.
        built.server.run("stdio")
    finally:
        over.set()
        _divert()
        built.jobs.close()


def _end_on_signals(close: Callable[[], None]) -> None:
    """Ends the process here and now: a thread of the SDK reads stdin, and nothing but a client wakes it."""

    def end(number: int, frame: object) -> None:
        # A second one does not wait for the jobs to end; the kernel then ends them.
        signal.signal(number, signal.SIG_DFL)
        close()
        os._exit(_EXIT_INTERRUPTED)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def _end_with_the_client(close: Callable[[], None], over: threading.Event) -> None:
    """Ends the process some seconds after its client, also where a call hangs and the SDK waits for it.

    Args:
        close: ends the jobs.
        over: set once the SDK is through.
    """
    try:
        # A duplicate: the SDK puts something else in the place of stdin.
        line = os.dup(_STDIN)
    except OSError:
        return  # closed from the start: the SDK ends at once

    def wait() -> None:
        # Nothing asked for: it is told of a hang-up alone, which files and /dev/null never have.
        hung_up = select.poll()
        hung_up.register(line, 0)
        hung_up.poll()
        if not over.wait(_FAREWELL_SECONDS):
            close()
            os._exit(0)

    threading.Thread(target=wait, name="trackside-hang-up", daemon=True).start()


@contextmanager
def _stdout_elsewhere() -> Iterator[None]:
    wire = os.dup(_STDOUT)
    try:
        _divert()
        yield
    finally:
        sys.stdout.flush()
        os.dup2(wire, _STDOUT)
        os.close(wire)


def _divert() -> None:
    """Lets what is still to be written to stdout, also what is in its buffer, go to stderr."""
    try:
        os.dup2(_STDERR, _STDOUT)
    except OSError:
        # Closed (`2>&-`).
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDOUT)
        os.close(nowhere)
