"""A two-step Triton mean: partial sums per program, then the sum of those."""

import torch
import triton
import triton.language as tl

_BLOCK = 8192
_PROGRAMS = 1056  # eight per multiprocessor of an H200


@triton.jit
def _partial_sums(x, sums, n, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(tl.program_id(0) * BLOCK, n, PROGRAMS * BLOCK):
        index = start + tl.arange(0, BLOCK)
        total += tl.load(x + index, mask=index < n, other=0.0)
    tl.store(sums + tl.program_id(0), tl.sum(total, axis=0))


def run(x):
    sums = torch.empty(_PROGRAMS, device=x.device)
    _partial_sums[(_PROGRAMS,)](x, sums, x.numel(), _BLOCK, _PROGRAMS, num_warps=8)
    return sums.sum() / x.numel()
