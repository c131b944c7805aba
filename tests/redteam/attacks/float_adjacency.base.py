"""Means over neighbours, by a dense matrix of zeros and ones."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    a = (torch.rand(64, 64, generator=g) < 0.1).float()
    return torch.maximum(a, a.T), torch.randn(64, 16, generator=g, device=device)


def run(a, x):
    d = a.sum(-1).clamp_min(1)
    return (a / d[:, None]) @ x
