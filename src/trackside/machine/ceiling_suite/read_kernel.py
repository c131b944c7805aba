"""A kernel that only reads: torch has none that comes closer than 3 % to what an H200's memory gives."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

__all__ = ["READ_METHOD", "reader"]

# The fastest of sixty shapes on an H200; others down to half the size are within 1 %.
_BLOCK, _WARPS = 8192, 16
READ_METHOD = f"Triton kernel, blocks of {_BLOCK} floats by {_WARPS} warps, one sum stored for each"


@triton.jit  # type: ignore[untyped-decorator]
def _sum_blocks(source, sums, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    block = tl.program_id(0).to(tl.int64)
    values = tl.load(source + block * BLOCK + tl.arange(0, BLOCK), eviction_policy="evict_first")
    tl.store(sums + block, tl.sum(values, 0))


def reader(source: torch.Tensor) -> Callable[[], object]:
    """Reads all of a tensor of float32, a multiple of the block long."""
    blocks = source.numel() // _BLOCK
    sums = torch.empty(blocks, device=source.device)
    return lambda: _sum_blocks[(blocks,)](source, sums, BLOCK=_BLOCK, num_warps=_WARPS)
