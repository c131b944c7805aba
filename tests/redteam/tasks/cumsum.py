"""Prefix sums along rows."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(256, 8192, generator=g, device=device),)


def run(x):
    return x.cumsum(dim=-1)
