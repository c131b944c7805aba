"""The server over stdin and stdout: nothing but the protocol on stdout, from the first import to the exit."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from trackside.mcp_server.scope import Scope

__all__ = ["serve_stdio"]

_STDOUT: Final = 1
_STDERR: Final = 2
# What a shell reports for a program that SIGINT ended, as every verb does.
_EXIT_INTERRUPTED: Final = 130


def serve_stdio(scope: Scope) -> None:
    """Serves one client until it closes stdin; what was started for it ends then."""
    with _stdout_elsewhere():
        # Inside: a package that prints when it is imported would break the first message.
        from trackside.mcp_server.server import build_server

        built = build_server(scope)
    _end_on_signals(built.jobs.close)
    try:
        # While it serves, the SDK itself keeps what others write to stdout away from the client.
        built.server.run("stdio")
    finally:
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
