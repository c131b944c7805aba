"""Stable sorting permutation of scores on a coarse grid: many ties, each index exactly once."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randint(0, 16, (64, 2048), generator=g, device=device) * 0.25,)


def run(x):
    return torch.argsort(x, dim=-1, stable=True)
