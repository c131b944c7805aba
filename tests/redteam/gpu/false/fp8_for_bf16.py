"""Rounds bf16 operands to float8 (e4m3) and uses the tensor cores' doubled rate."""

import torch
import triton
import triton.language as tl


@triton.jit
def _cast_transposed(x, y, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    tile = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    narrow = tl.trans(tile.to(tl.float32)).to(tl.float8e4nv)
    tl.store(y + column[:, None] * rows + row[None, :], narrow, mask=tl.trans(inside))


_one = {}


def run(a, b):
    if a.device not in _one:
        _one[a.device] = torch.ones((), device=a.device)
    k, n = b.shape
    b_t = torch.empty(n, k, dtype=torch.float8_e4m3fn, device=b.device)  # the product wants K innermost
    _cast_transposed[(triton.cdiv(k, 64), triton.cdiv(n, 64))](b, b_t, k, n, 64)
    scale = _one[a.device]
    return torch._scaled_mm(
        a.to(torch.float8_e4m3fn), b_t.t(), scale, scale, out_dtype=a.dtype, use_fast_accum=True
    )
