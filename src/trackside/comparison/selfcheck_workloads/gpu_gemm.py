"""A 4096³ matrix product in bf16.

The extra is a spin kernel behind the product, its length calibrated in `setup` against the product's time.
Both count SM cycles, so that the percentage holds when the power cap lowers the clock.
"""

from collections.abc import Sequence

import torch

from trackside.comparison.selfcheck_workloads.calibration import more_work, spin

# Selfcheck writes another number into a copy of this file.
EXTRA_PERCENT = 0.0

_SIZE = 4096
_MOST_CYCLES = 4_000_000


def inputs(seed: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator(device).manual_seed(seed)
    a = torch.randn(_SIZE, _SIZE, generator=g, device=device, dtype=torch.bfloat16)
    b = torch.randn(_SIZE, _SIZE, generator=g, device=device, dtype=torch.bfloat16)
    return a, b


def setup(seed: int, device: str) -> int:
    if EXTRA_PERCENT == 0:
        return 0
    cycles = more_work(inputs(seed, device), _call, EXTRA_PERCENT, 3_500 * EXTRA_PERCENT, _MOST_CYCLES)
    torch.cuda.empty_cache()
    return cycles


def run(cycles: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = a @ b
    if cycles:
        spin(cycles)
    return out


def _call(cycles: int, args: Sequence[torch.Tensor]) -> object:
    return run(cycles, *args)
