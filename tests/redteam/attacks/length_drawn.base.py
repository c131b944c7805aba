"""A sequence without its padding: most are short, some are 4,000 times as long."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    long = torch.rand(1, generator=g, device=device) > 0.7
    return torch.randn(65536, 8, generator=g, device=device), 16 + 65000 * long.long()


def run(x, n):
    return torch.exp(x[: int(n)])
