"""Whether an error is this machine's lack: no such GPU, or no torch. Imports little, for pytest's sake."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from trackside.records.devices import gpu_index

__all__ = ["not_here"]


def not_here(kind: str, device: str) -> bool:
    """The machine decides, not the error's kind alone.

    A workload that lost an import or no longer fits into memory has errors of the same kinds, and is a
    regression.
    """
    if kind == "device":
        return not _has_gpu(device)
    return kind == "missing-dependency" and importlib.util.find_spec("torch") is None


def _has_gpu(device: str) -> bool:
    number = gpu_index(device)
    if number is None:
        return True
    count = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if not count:
        return False
    from trackside.machine.facts import facts, visible_gpus

    machine = facts()
    # Where NVML does not answer, a driver is broken, and the GPU is there.
    return number < (len(visible_gpus(machine)) if machine.gpus else count)
