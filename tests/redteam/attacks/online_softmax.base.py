"""Attention."""

import torch
import torch.nn.functional as F


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return tuple(torch.randn(2, 2, 128, 32, generator=g, device=device) for _ in range(3))


def run(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)
