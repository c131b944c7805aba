"""One child process of a suite: its document, its last words, and an end that takes its whole tree along."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import orjson

from trackside.records.errors import printable
from trackside.store.runs import process_mark
from trackside.workload.sandbox import die_with_parent
from trackside.workload.supervisor import descendants

__all__ = ["Child", "Ended"]

# How long a comparison may take to put its workers away and to write its record, after an interrupt.
_FAREWELL_S: Final = 20.0
# After its death: a supervisor that outlives it ends what is left.
_AFTERWARDS_S: Final = 15.0
_POLL_S: Final = 0.02
_LONGEST_LINE: Final = 200


class Ended:
    """How a child ended: its exit code and the one JSON document that it printed, if it did."""

    def __init__(self, code: int, out: bytes, err: str) -> None:
        self.code = code
        self.err = err
        try:
            found = orjson.loads(out)
        except ValueError:
            found = None
        self.document: dict[str, Any] = found if isinstance(found, dict) else {}

    @property
    def error(self) -> dict[str, str] | None:
        """Kind, message and remedy, where there is no result; made up where it did not even say so."""
        given = self.document.get("error")
        if isinstance(given, dict):
            return {name: str(given.get(name, "")) for name in ("kind", "message", "remedy")}
        if self.document:
            return None
        how = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return {
            "kind": "internal",
            "message": f"the child ended with {how} and no result; its output ends: {self.err[-300:]}",
            "remedy": "run the same comparison by hand: trackside compare",
        }


class Child:
    """A child with its own process group, so that Ctrl-C reaches it once, through us.

    Started in the thread that waits for it: the kernel ends the child with that thread.

    Args:
        arguments: what follows the interpreter, such as `-m trackside compare …`.
        environment: on top of this process's.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._files = contextlib.ExitStack()
        self._out, self._err = (
            self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the stack
            for _ in range(2)
        )
        self.began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            env=os.environ | dict(environment or {}),
            cwd=cwd,
            process_group=0,
            preexec_fn=die_with_parent,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def ended(self) -> Ended | None:
        """How it ended; None while it runs."""
        return None if self._process.poll() is None else self._harvest()

    def wait(self, seconds: float) -> Ended | None:
        """As `ended`, after so many seconds at most."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.ended()

    def last_line(self) -> str:
        """What it last narrated, fit for a terminal."""
        lines = [line.strip() for line in self._text().splitlines() if line.strip()]
        return printable(lines[-1])[:_LONGEST_LINE] if lines else ""

    def cancel(self) -> None:
        """End it with everything that it started; returns when they are gone."""
        family = self._family()
        if self._process.poll() is None:
            # Not SIGINT: what a shell starts in the background has it ignored, and so have we and it.
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + _FAREWELL_S
            while self._process.poll() is None and time.monotonic() < deadline:
                # It may have started more since.
                family |= self._family()
                time.sleep(_POLL_S)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        _end(family)
        self._files.close()

    def _family(self) -> dict[int, str]:
        """The processes below it, each with the mark that tells it from a later one of that number."""
        return {pid: mark for pid in descendants(self._process.pid) if (mark := process_mark(pid))}

    def _harvest(self) -> Ended:
        self._out.seek(0)
        out, err = self._out.read(), self._text()
        self._files.close()
        return Ended(self._process.returncode, out, err)

    def _text(self) -> str:
        size = os.fstat(self._err.fileno()).st_size
        data = os.pread(self._err.fileno(), 4096, max(0, size - 4096))
        return data.decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.cancel()
        self._files.close()


def _end(family: Mapping[int, str]) -> None:
    """Wait for these processes to go, and kill those that do not."""
    deadline = time.monotonic() + _AFTERWARDS_S
    while alive := [pid for pid, mark in family.items() if process_mark(pid) == mark]:
        if time.monotonic() > deadline:
            for pid in alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            return
        time.sleep(_POLL_S)
