"""Real runs under torchrun, with two ranks that talk through gloo on the CPU."""

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

__all__ = ["TRAINING", "Torchrun"]

# Data-parallel training; arguments say what becomes of a rank at a step: `fail=1@60`.
TRAINING = """
import os, signal, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
steps = int(sys.argv[1])
told = dict(word.split("=") for word in sys.argv[2:])
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(64, 256)
def say(text):
    os.write(1, f"rank {rank} {text}\\n".encode())  # torchrun runs python -u, and print would write twice
say("begins")
for step in range(steps):
    if told.get("fail") == f"{rank}@{step}":
        raise SystemExit(7)
    if told.get("kill") == f"{rank}@{step}":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    if told.get("leave") == f"{rank}@{step}":
        sys.exit(0)
if told.get("then") == "wait":
    say("waits")
    time.sleep(60)
say("is done")
dist.destroy_process_group()
"""


class Torchrun:
    """One start of torchrun in a folder of its own, with a store there."""

    def __init__(
        self,
        folder: Path,
        *words: str,
        source: str = TRAINING,
        name: str = "train.py",
        locks: Path | None = None,
    ) -> None:
        self.folder, self.home = folder, folder / "home"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(source))
        plain = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "NO_COLOR")}
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        self.process = subprocess.Popen(
            [*torchrun, "-m", "trackside", "profile", *words],
            env=plain
            | {"TRACKSIDE_HOME": str(self.home), "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
            # One for each, so that two run at once.
            | {"TRACKSIDE_LOCKS": str(locks or folder / f"locks-{secrets.token_hex(4)}")},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def end(self, seconds: float = 100) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        try:
            out, err = self.process.communicate(timeout=seconds)
        finally:
            self.kill()
        return self.process.returncode, out, err

    def kill(self) -> None:
        if self.process.poll() is None:
            # torchrun ends its ranks, which have sessions of their own; it kills them after thirty seconds.
            self.process.send_signal(signal.SIGTERM)
            self.process.communicate(timeout=45)

    @property
    def record(self) -> dict[str, Any]:
        """The one record that there is."""
        (path,) = (self.home / "runs").glob("*/record.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    @property
    def limits(self) -> str:
        return "\n".join(f"{one['what']}: {one['effect']}" for one in self.record["trust"])
