"""Kernels of one's own that use a GPU badly: far accesses, float64, tiles beyond the registers."""

import torch
import triton
import triton.language as tl

ROWS, COLUMNS, STEPS = 8192, 4096, 60


@triton.jit
def scale_columns(x, y, rows, columns, BLOCK: tl.constexpr):
    # Neighbouring threads take neighbouring rows, which lie a whole row apart.
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = row * columns + tl.program_id(1)
    tl.store(y + place, tl.load(x + place, mask=row < rows) * 2.0, mask=row < rows)


@triton.jit
def powers(x, y, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place, mask=place < n).to(tl.float64)
    total = value
    for _ in range(48):
        total = total * value + 0.5
    tl.store(y + place, total.to(tl.float32), mask=place < n)


@triton.jit
def row_norm(x, y, COLUMNS: tl.constexpr):
    # A whole tile of 8 rows held by one warp.
    rows = tl.program_id(0) * 8 + tl.arange(0, 8)
    place = rows[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tile = tl.load(x + place)
    centred = tile - tl.sum(tile, axis=1)[:, None] / COLUMNS
    scale = tl.sum(centred * centred, axis=1)[:, None] / COLUMNS
    tl.store(y + place, centred * tl.rsqrt(scale + 1e-5) + tile)


def step(x, y, z):
    scale_columns[(triton.cdiv(ROWS, 128), COLUMNS)](x, y, ROWS, COLUMNS, BLOCK=128)
    powers[(triton.cdiv(x.numel(), 1024),)](y, z, x.numel(), BLOCK=1024)
    row_norm[(ROWS // 8,)](z, y, COLUMNS=COLUMNS, num_warps=1)


def main():
    x = torch.rand(ROWS, COLUMNS, device="cuda") * 0.5
    y, z = torch.empty_like(x), torch.empty_like(x)
    for _ in range(STEPS):
        step(x, y, z)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
