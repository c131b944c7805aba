"""Doubles of all magnitudes from whole numbers."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randint(0, 3000, (512, 256), generator=g, device=device)


def run(x):
    return torch.exp(-x.double() / 17)
