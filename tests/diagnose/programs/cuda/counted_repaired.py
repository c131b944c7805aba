"""The same results by kernels that use a GPU well."""

import torch
import triton
import triton.language as tl

ROWS, COLUMNS, STEPS = 8192, 4096, 60


@triton.jit
def scale_columns(x, y, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + place, tl.load(x + place, mask=place < n) * 2.0, mask=place < n)


@triton.jit
def powers(x, y, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place, mask=place < n)
    total = value
    for _ in range(48):
        total = total * value + 0.5
    tl.store(y + place, total, mask=place < n)


@triton.jit
def row_norm(x, y, COLUMNS: tl.constexpr):
    place = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    tile = tl.load(x + place)
    centred = tile - tl.sum(tile, axis=0) / COLUMNS
    scale = tl.sum(centred * centred, axis=0) / COLUMNS
    tl.store(y + place, centred * tl.rsqrt(scale + 1e-5) + tile)


def step(x, y, z):
    scale_columns[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    powers[(triton.cdiv(x.numel(), 1024),)](y, z, x.numel(), BLOCK=1024)
    row_norm[(ROWS,)](z, y, COLUMNS=COLUMNS, num_warps=8)


def main():
    x = torch.rand(ROWS, COLUMNS, device="cuda") * 0.5
    y, z = torch.empty_like(x), torch.empty_like(x)
    for _ in range(STEPS):
        step(x, y, z)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
