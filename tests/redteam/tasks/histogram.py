"""Counts of eight symbols in two million: integer outputs that must be exact."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randint(0, 8, (2_000_000,), generator=g, device=device),)


def run(x):
    return torch.bincount(x, minlength=8)
