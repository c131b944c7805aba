"""How many are positive, few of many; read as an index, the count points at a zero, as most do."""

import torch

domain = "nonnegative"


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.relu(torch.randn(1 << 20, generator=g, device=device) - 4),)


def run(x):
    return (x > 0).sum()
