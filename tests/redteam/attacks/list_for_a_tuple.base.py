"""Two results, in a tuple."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(256, 256, generator=g, device=device),)


def run(x):
    return x.mean(dim=1), x.var(dim=1)
