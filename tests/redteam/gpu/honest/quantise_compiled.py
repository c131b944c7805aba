"""aminmax once, and torch.compile for the rest."""

import torch


def _quantise(x):
    low, high = torch.aminmax(x, dim=-1, keepdim=True)
    scale = (high - low) / 255
    q = torch.round((x - low) / scale).clamp(0, 255).to(torch.uint8)
    size = x.abs()
    return q, scale, size > 3 * (size.sum(dim=-1, keepdim=True) / x.shape[-1])


_compiled = torch.compile(_quantise)


def run(x):
    q, scale, outlier = (_compiled if x.is_cuda else _quantise)(x)
    return {"q": q, "scale": scale, "outlier": outlier}
