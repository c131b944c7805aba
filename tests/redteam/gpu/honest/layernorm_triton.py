"""Layer norm in one Triton pass per row, with the variance of the centred values."""

import torch
import triton
import triton.language as tl


@triton.jit
def _layer_norm(x, weight, bias, out, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + row * columns + column, mask=inside, other=0.0)
    centred = tl.where(inside, value - tl.sum(value, axis=0) / columns, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + epsilon)
    w = tl.load(weight + column, mask=inside)
    b = tl.load(bias + column, mask=inside)
    tl.store(out + row * columns + column, centred * scale * w + b, mask=inside)


def setup(seed, device):
    columns = 4096 if str(device).startswith("cuda") else 128
    g = torch.Generator(device).manual_seed(seed)
    return {
        "weight": torch.randn(columns, generator=g, device=device),
        "bias": torch.randn(columns, generator=g, device=device),
    }


def run(state, x):
    x = x.contiguous()
    rows, columns = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(columns)
    _layer_norm[(rows,)](x, state["weight"], state["bias"], out, columns, 1e-5, block, num_warps=8)
    return out
