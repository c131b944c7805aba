"""Runs a program as it is and tells its steps' times, on the wall and of its thread: `python steps.py FILE`.

Nothing of ours is in it but a hook at the end of the optimizer's step.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from itertools import pairwise

__all__ = ["main"]


def main() -> int:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    ends: list[tuple[int, int]] = []

    def stepped(optimizer: object, args: object, kwargs: object) -> None:
        ends.append((time.perf_counter_ns(), time.thread_time_ns()))

    register_optimizer_step_post_hook(stepped)
    # What the program prints is not ours to read.
    result = os.dup(1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    runpy.run_path(sys.argv[1], run_name="__main__")
    steps = [[b - a for a, b in zip(before, after, strict=True)] for before, after in pairwise(ends)]
    os.write(result, json.dumps(steps).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
