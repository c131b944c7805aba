"""Plays a coding assistant: knows the tools and how to repair one pattern, and nothing of the project."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.mcp_server.connected import Held

__all__ = ["MODEL", "TRAIN", "Assistant", "project"]

MODEL = """\
import torch

ROWS, WIDTH = SIZE, SIZE


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(ROWS, WIDTH, generator=g, device=device)
    w = torch.randn(WIDTH, WIDTH, generator=g, device=device)
    return x, w


def run(x, w):
    x = x * 2
    mixed = torch.stack([row @ w for row in x])
    return mixed + 1
"""
TRAIN = """\
import sys

import torch
from model import inputs, run

torch.set_num_threads(1)
x, w = inputs(0, "cpu")
w.requires_grad_()
optimizer = torch.optim.SGD([w], lr=1e-6)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    run(x, w).square().mean().backward()
    optimizer.step()
"""

_LOOP = re.compile(r"torch\.stack\(\[(\w+) @ (\w+) for \1 in (\w+)\]\)")


def project(folder: Path, blank_lines: int, size: int = 192) -> None:
    """A slow program, its hot line so many lines further down."""
    (folder / "lib").mkdir()
    head, body = MODEL.replace("SIZE", str(size)).split("def run")
    (folder / "lib" / "model.py").write_text(head + "\n" * blank_lines + "def run" + body)
    (folder / "train.py").write_text("import sys\nsys.path.insert(0, 'lib')\n" + TRAIN)


@dataclass
class Assistant:
    server: Held
    dialogue: list[str] = field(default_factory=list)

    def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        found = self.server.ask(tool, **arguments)
        words = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        self.dialogue.append(f"> {tool}({words})\n{json.dumps(found, ensure_ascii=False)}")
        return found

    def finish(self, job: str) -> dict[str, Any]:
        while (found := self.ask("job_get", job=job, wait=50))["state"] in ("queued", "running"):
            pass
        return found

    def hottest(self, script: str, *args: str) -> dict[str, Any]:
        job = self.finish(self.ask("profile_start", script=script, args=list(args))["job"])
        assert job["state"] == "done", job
        return dict(self.ask("hotspots_list", run=job["run"])["rows"][0])

    def rewritten(self, place: dict[str, Any], name: str, repair: str) -> str:
        """A candidate beside the file that an answer named, with the line that it named repaired."""
        path = self.server.folder / place["file"]
        lines = path.read_text().splitlines()
        old = lines[place["line"] - 1]
        assert old.strip() == place["text"]
        lines[place["line"] - 1] = _LOOP.sub(repair, old)
        assert lines[place["line"] - 1] != old, old
        candidate = path.with_name(name)
        candidate.write_text("\n".join(lines) + "\n")
        return str(candidate.relative_to(self.server.folder))

    def judge(self, baseline: str, candidate: str, **options: Any) -> dict[str, Any]:
        return self.finish(
            self.ask("compare_start", baseline=baseline, candidate=candidate, **options)["job"]
        )
