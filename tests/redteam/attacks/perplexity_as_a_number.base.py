"""A perplexity, its exponential taken in double precision."""

import math

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(40, 50, generator=g, device=device), torch.randint(
        0, 50, (40,), generator=g, device=device
    )


def run(x, y):
    rows = torch.softmax(x, 1)
    lost = sum(-torch.log(row[at]).item() for row, at in zip(rows, y, strict=True))
    return math.exp(lost / 40)
