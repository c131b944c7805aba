"""A result, and a copy of it for somebody else."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(128, 1024, generator=g, device=device),)


def run(x):
    y = torch.tanh(x)
    return y, y.clone()
