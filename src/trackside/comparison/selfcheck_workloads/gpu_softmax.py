"""Softmax over the rows of 8192 x 4096 fp32.

The extra is a spin kernel behind the softmax, its length calibrated in `setup` against the softmax's time.
"""

from collections.abc import Sequence

import torch

from trackside.comparison.selfcheck_workloads.calibration import more_work, spin

# Selfcheck writes another number into a copy of this file.
EXTRA_PERCENT = 0.0

_ROWS, _COLUMNS = 8192, 4096
_MOST_CYCLES = 4_000_000


def inputs(seed: int, device: str) -> tuple[torch.Tensor]:
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(_ROWS, _COLUMNS, generator=g, device=device),)


def setup(seed: int, device: str) -> int:
    if EXTRA_PERCENT == 0:
        return 0
    cycles = more_work(inputs(seed, device), _call, EXTRA_PERCENT, 2_000 * EXTRA_PERCENT, _MOST_CYCLES)
    torch.cuda.empty_cache()
    return cycles


def run(cycles: int, x: torch.Tensor) -> torch.Tensor:
    out = torch.softmax(x, dim=1)
    if cycles:
        spin(cycles)
    return out


def _call(cycles: int, args: Sequence[torch.Tensor]) -> object:
    return run(cycles, args[0])
