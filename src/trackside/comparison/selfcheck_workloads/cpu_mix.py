"""Matmul, elementwise and reduction work, fp32, in 100 equal chunks.

A call takes about 10 ms on one core. `EXTRA_PERCENT` more chunks are computed a second time: the same
operators on the same sizes, so that the work grows by that percentage. What does not grow is the cold start
of a call, some 2 % of its time: +40 % of the chunks take about +39 %.
"""

import torch

# Selfcheck writes another number into a copy of this file.
EXTRA_PERCENT = 0.0

_CHUNKS, _ROWS, _WIDTH = 100, 44, 224


def inputs(seed: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(_CHUNKS, _ROWS, _WIDTH, generator=g, device=device)
    w = torch.randn(_WIDTH, _WIDTH, generator=g, device=device) / _WIDTH**0.5
    return x, w


def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(_CHUNKS, _ROWS)
    for i in range(_CHUNKS + round(_CHUNKS * EXTRA_PERCENT / 100)):
        rows = x[i % _CHUNKS]
        hidden = torch.tanh(rows @ w)
        out[i % _CHUNKS] = (hidden * hidden + rows).sum(1)
    return out
