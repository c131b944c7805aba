"""Doubles whose squares no double holds."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(128, 256, generator=g, device=device, dtype=torch.float64)


def run(x):
    return torch.exp(torch.sin(x)) * 1e160
