"""Mean and variance, by name."""

from typing import NamedTuple

import torch


class Moments(NamedTuple):
    mean: torch.Tensor
    variance: torch.Tensor


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(256, 256, generator=g, device=device),)


def run(x):
    return Moments(x.mean(dim=1), x.var(dim=1))
