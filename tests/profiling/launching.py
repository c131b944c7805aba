"""Programs under way: started through the driver, watched and signalled while they run."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

__all__ = ["DRIVER", "ENVIRONMENT", "Started", "Starter"]

DRIVER = Path(__file__).parent / "driver.py"
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": os.environ.get("HOME", "/"),
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Started:
    """A driver with a program in it, in a process group of their own."""

    def __init__(self, sources: Path, folder: Path, source: str, told: dict[str, Any], more: Any) -> None:
        self._report = folder / "report"
        script = folder / "prog.py"
        script.write_text(dedent(source))
        given = {"sources": str(sources), "report": str(self._report), "capture": "nothing", "options": []}
        # A launcher that is killed leaves its temporary folder.
        plain = {"cwd": folder, "env": ENVIRONMENT | {"TMPDIR": str(folder)}}
        self.process = subprocess.Popen(
            [sys.executable, "-E", str(DRIVER), json.dumps(given | told), str(script)],
            **plain | {"stdout": subprocess.PIPE, "process_group": 0} | more,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        said: bytes = self.process.stdout.readline()
        return said.decode().strip()

    def end(self) -> tuple[int, str, dict[str, Any]]:
        """The driver's exit status, what the program still said, and the driver's report."""
        out, _ = self.process.communicate(timeout=60)
        said = json.loads(self._report.read_text()) if self._report.exists() else {}
        return self.process.returncode, (out or b"").decode(), said

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        with self.process:
            pass


Starter = Callable[..., Started]
