"""Means of two pixels, rounded to whole numbers: half of them are half a number, in all arithmetic."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return tuple(torch.randint(0, 256, (64, 64), generator=g, dtype=torch.uint8) for _ in range(2))


def run(a, b):
    return ((a.float() + b.float()) / 2).round().to(torch.uint8)
