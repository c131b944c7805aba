"""A copy of 1 GiB: 2 GiB of memory traffic.

The extra is a spin kernel behind the copy, its length calibrated in `setup` against the copy's time.
"""

from collections.abc import Sequence

import torch

from trackside.comparison.selfcheck_workloads.calibration import more_work, spin

# Selfcheck writes another number into a copy of this file.
EXTRA_PERCENT = 0.0

_ELEMENTS = 1 << 28
_MOST_CYCLES = 10_000_000


def inputs(seed: int, device: str) -> tuple[torch.Tensor]:
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(_ELEMENTS, generator=g, device=device),)


def setup(seed: int, device: str) -> int:
    if EXTRA_PERCENT == 0:
        return 0
    cycles = more_work(inputs(seed, device), _call, EXTRA_PERCENT, 10_000 * EXTRA_PERCENT, _MOST_CYCLES)
    torch.cuda.empty_cache()
    return cycles


def run(cycles: int, x: torch.Tensor) -> torch.Tensor:
    out = x.clone()
    if cycles:
        spin(cycles)
    return out


def _call(cycles: int, args: Sequence[torch.Tensor]) -> object:
    return run(cycles, args[0])
