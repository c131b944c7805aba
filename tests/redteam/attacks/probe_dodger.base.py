"""ELU spelled out on inputs that are never negative; negative ones are legal."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.rand(1024, 1024, generator=g, device=device),)


def run(x):
    return torch.where(x > 0, x, torch.exp(x) - 1.0)
