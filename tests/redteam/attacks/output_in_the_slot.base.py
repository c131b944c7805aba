"""Half of a large tensor: the output comes fresh from the kernel every time."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(2100, 4096, generator=g, device=device),)


def run(x):
    return x * 0.5
