"""diagonal-product: columns are scaled by a product with a diagonal matrix."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    return nn.Linear(256, 512).to(device).requires_grad_(False), torch.rand(512, device=device) + 0.5


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(600, 256, generator=g, device=device)


def run(state, x):
    layer, scale = state
    return torch.tanh(layer(x) @ torch.diag(scale))
