"""Small projects with a suite file, and workloads that take milliseconds."""

from pathlib import Path

__all__ = ["BASELINE", "RIGHT", "WRONG", "project"]

BASELINE = """\
import torch

def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(64, 32, generator=g, device=device),)

def run(x):
    return torch.softmax(x, 1)
"""
RIGHT = """\
import torch

def run(x):
    e = torch.exp(x - x.amax(1, keepdim=True))
    return e / e.sum(1, keepdim=True)
"""
# Wrong in one row alone, as an off-by-one at a block's edge would have it.
WRONG = RIGHT.replace("    return e", "    e[3] = 1.0\n    return e")


def project(folder: Path, suite: str, **files: str) -> Path:
    """Write a suite file and Python files, named without their suffix; returns the suite's path."""
    for name, source in files.items():
        (folder / f"{name}.py").write_text(source)
    path = folder / "trackside.toml"
    path.write_text(suite)
    return path
