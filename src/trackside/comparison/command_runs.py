"""One run of a command: a time limit, a temporary folder of its own, and everything it left taken away."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trackside.comparison.arms import CANDIDATE
from trackside.comparison.command_host import Ended, Host, clear
from trackside.comparison.command_outputs import STDOUT, Output, collect, printed

__all__ = ["SEED", "Runner", "Shot"]

SEED: Final = "{seed}"
"""Replaced in both command lines by a number that neither could know; no timed run of an arm repeats one."""

# A later run may take this many times the arm's first, which had the full time.
_PATIENCE, _SHORTEST_TIMEOUT_S = 10, 10.0
_STDERR_READ, _STDERR_SHOWN = 4096, 300


@dataclass
class Shot:
    """What one run came to."""

    ended: Ended
    outputs: dict[str, Output | None]
    """By name; None where a file that was expected is not there."""
    stderr: str
    began: int
    finished: int

    @property
    def problem(self) -> str | None:
        """Why it did not succeed, in words that follow `the candidate`."""
        ended = self.ended
        if ended.timed_out:
            return f"ran past its {ended.ns / 1e9:.0f} s{self._last_words}"
        if ended.trouble is not None:
            return f"failed: {ended.trouble}{self._last_words}"
        return f"ended with exit code {ended.exit_code}{self._last_words}" if ended.exit_code else None

    @property
    def _last_words(self) -> str:
        # The last line of a traceback has its message.
        last = self.stderr.splitlines()[-1].strip()[-_STDERR_SHOWN:] if self.stderr else ""
        return f": {last}" if last else ""


class Runner:
    """Runs both arms' commands, one at a time."""

    def __init__(
        self,
        host: Host,
        argvs: dict[str, list[str]],
        folder: Path,
        scratch: Path,
        outputs: Sequence[str],
        timeout: float,
    ) -> None:
        self._host, self._argvs, self._folder, self._scratch = host, argvs, folder, scratch
        self._outputs, self._timeout = outputs, timeout
        self.first_ns: dict[str, int] = {}
        """How long each arm took when it ran first."""
        self._kept: list[Output] = []

    def run(self, arm: str, seed: int, block: int) -> Shot:
        """Run one arm; `block` chooses the temporary folder, which runs of one arm in one block share."""
        for name in self._outputs:
            clear(self._folder / name)
        # Of equal length for both arms: the size of the environment moves the stack.
        place = self._scratch / f"{'b' if arm == CANDIDATE else 'a'}{block:03}"
        place.mkdir(exist_ok=True)
        argv = [token.replace(SEED, str(seed)) for token in self._argvs[arm]]
        first = self.first_ns.get(arm)
        limit = self._timeout if first is None else max(_SHORTEST_TIMEOUT_S, _PATIENCE * first / 1e9)
        stdout = tempfile.TemporaryFile()  # noqa: SIM115 - kept until the outputs are compared
        with tempfile.TemporaryFile() as stderr:
            began = time.monotonic_ns()
            ended = self._host.run(
                argv,
                self._folder,
                os.environ | {"TMPDIR": str(place)},
                stdout.fileno(),
                stderr.fileno(),
                limit,
            )
            finished = time.monotonic_ns()
            size = stderr.seek(0, os.SEEK_END)
            stderr.seek(max(0, size - _STDERR_READ))
            said = stderr.read().decode(errors="replace").strip()
        found: dict[str, Output | None] = {STDOUT: printed(stdout)}
        for name in self._outputs:
            found[name] = collect(name, self._folder / name)
        self._kept.extend(output for output in found.values() if output is not None)
        self.first_ns.setdefault(arm, ended.ns)
        return Shot(ended, found, said, began, finished)

    def forget(self) -> None:
        """Drop the outputs of all runs so far."""
        for output in self._kept:
            output.file.close()
        self._kept.clear()
