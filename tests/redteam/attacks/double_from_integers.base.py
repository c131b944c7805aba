"""Doubles from whole numbers: no input could be moved to see what rounding does."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randint(0, 100_000, (512, 256), generator=g, device=device)


def run(x):
    return torch.sin(x.double()).sum(dim=1)
