"""Layer norm as its constructor leaves it: every weight one, every bias zero."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    return nn.LayerNorm(256).to(device).requires_grad_(False)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(64, 256, generator=g, device=device) * 2 + 1


def run(norm, x):
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias
