"""Signs; that of zero is zero."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(64, 128, generator=g, device=device),)


def run(x):
    return torch.sign(x)
