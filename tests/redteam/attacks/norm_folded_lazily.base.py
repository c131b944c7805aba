"""A norm as its constructor leaves it, and a product."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    return nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 64)).to(device).requires_grad_(False)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(64, 256, generator=g, device=device) * 2 + 1


def run(layers, x):
    return layers(x)
