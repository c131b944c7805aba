"""A Python float, that is a double, summed in double precision."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.rand(1 << 20, generator=g, device=device) + 0.5, torch.rand(
        1 << 20, generator=g, device=device
    )


def run(x, y):
    return float(torch.dot(x.double(), y.double()))
