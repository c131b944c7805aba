"""Block by block with a running maximum and sum."""

import torch


def run(q, k, v):
    scale = q.shape[-1] ** -0.5
    m = torch.full((*q.shape[:-1], 1), float("-inf"))
    total = torch.zeros_like(m)
    o = torch.zeros_like(q)
    for j in range(0, k.shape[-2], 32):
        s = (q @ k[..., j : j + 32, :].transpose(-1, -2)) * scale
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        p = torch.exp(s - new)
        c = torch.exp(m - new)
        total = total * c + p.sum(-1, keepdim=True)
        o = o * c + p @ v[..., j : j + 32, :]
        m = new
    return o / total
