"""A hand-written kernel whose author waits for it, where the baseline does not."""

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + row * columns + column, mask=inside, other=-float("inf"))
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * columns + column, value / tl.sum(value, axis=0), mask=inside)


def run(x):
    x = x.contiguous()
    rows, columns = x.shape
    out = torch.empty_like(x)
    _softmax[(rows,)](x, out, columns, triton.next_power_of_2(columns), num_warps=16)
    torch.cuda.synchronize()
    return out
