"""A high quantile of every row."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(32, 8192, generator=g, device=device),)


def run(x):
    return torch.quantile(x, 0.99, dim=-1)
