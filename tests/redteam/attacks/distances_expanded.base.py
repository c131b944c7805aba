"""Squared distances; scaled by 2**100 they overflow float32, though not the oracle's float64."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return tuple(torch.randn(n, 64, generator=g, device=device) for n in (80, 76))


def run(a, b):
    return (a[:, None] - b[None]).square().sum(-1)
