"""The elements above a half, in order: how many there are depends on the data."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(1 << 20, generator=g, device=device),)


def run(x):
    return x[torch.nonzero(x > 0.5).reshape(-1)]
