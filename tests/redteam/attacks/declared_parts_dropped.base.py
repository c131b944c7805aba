"""A float32 as three bfloat16, for products in several passes."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(1 << 16, generator=g, device=device)


def run(x):
    first = x.bfloat16()
    left = x - first.float()
    second = left.bfloat16()
    return first, second, (left - second.float()).bfloat16()


tolerance = 1e-2
