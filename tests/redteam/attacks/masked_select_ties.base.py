"""The elements above a half, in order; many lie on it exactly."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return ((torch.randn(1 << 16, generator=g, device=device) * 16).round() / 16,)


def run(x):
    return x[torch.nonzero(x > 0.5).reshape(-1)]
