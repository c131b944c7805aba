"""Runs a workload over and over, as a program of its own would: `python program.py FILE DEVICE SECONDS`."""

from __future__ import annotations

import importlib.util
import sys
import time

__all__ = ["main"]

BATCHES = 4


def main() -> None:
    file, device, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    spec = importlib.util.spec_from_file_location("workload", file)
    assert spec is not None
    assert spec.loader is not None
    workload = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(workload)
    state = [workload.setup(0, device)] if hasattr(workload, "setup") else []
    batches = [workload.inputs(seed, device) for seed in range(BATCHES)]
    given = [batch if isinstance(batch, tuple | list) else (batch,) for batch in batches]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for arguments in given:
            workload.run(*state, *arguments)


if __name__ == "__main__":
    main()
