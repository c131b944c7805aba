"""One workload called as compare's cold path calls it: flush, inputs copied into place, run.

`python -m benchmarks.ncu_target FILE COUNT nvtx|events`: with `nvtx` each call is a range `timed`, for ncu to
find; with `events` the calls and empty pairs of events are timed, and printed as JSON.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from statistics import median

import torch

__all__ = ["main"]

FLUSH_BYTES, FLUSHES, WARM = 256 << 20, 3, 20


def main(file: str, count: int, mode: str) -> None:
    specification = importlib.util.spec_from_file_location("target", file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    sources = module.inputs(3, "cuda")
    state = (module.setup(3, "cuda"),) if hasattr(module, "setup") else ()
    places = [source.clone() for source in sources]
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def prepare() -> None:
        for _ in range(FLUSHES):
            flush.zero_()
        for place, source in zip(places, sources, strict=True):
            place.copy_(source)

    for _ in range(WARM):
        prepare()
        module.run(*state, *places)
    torch.cuda.synchronize()
    if mode == "nvtx":
        for _ in range(count):
            prepare()
            torch.cuda.nvtx.range_push("timed")
            module.run(*state, *places)
            torch.cuda.nvtx.range_pop()
            torch.cuda.synchronize()
        return
    calls: list[float] = []
    empty: list[float] = []
    for _ in range(count):
        for times, work in ((calls, True), (empty, False)):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            prepare()
            start.record()
            if work:
                module.run(*state, *places)
            end.record()
            torch.cuda.synchronize()
            times.append(1e3 * start.elapsed_time(end))
    print(json.dumps({"events_us": median(calls), "empty_us": median(empty)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
