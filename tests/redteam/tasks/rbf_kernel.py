"""A kernel matrix of Gaussians: every difference, its square, and the exponential of their sum."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return tuple(torch.randn(n, 16, generator=g, device=device) for n in (256, 200))


def run(a, b):
    return torch.exp(-0.1 * (a[:, None] - b[None]).pow(2).sum(dim=-1))
