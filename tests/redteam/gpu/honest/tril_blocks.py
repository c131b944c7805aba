"""Uses the triangular structure of both operands: the lower blocks only, and zeros written above them."""

import torch

_BLOCKS = 8


def run(a, b):
    n = a.shape[0]
    if n % _BLOCKS:
        return torch.tril(a @ b)
    out = torch.zeros_like(a)
    step = n // _BLOCKS
    for end in range(step, n + 1, step):
        out[end - step : end, :end] = torch.tril(
            a[end - step : end, :end] @ b[:end, :end], diagonal=end - step
        )
    return out
