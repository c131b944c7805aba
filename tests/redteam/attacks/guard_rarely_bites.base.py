"""A guard against outliers, in place: it bites in one draw of three."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(64, 1024, generator=g, device=device)


def run(x):
    x.clamp_(-4.3, 4.3)
    return torch.exp(x)
