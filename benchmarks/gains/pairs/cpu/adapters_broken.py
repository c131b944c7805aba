"""chain-order: a layer with a low-rank adapter, whose two factors are multiplied with each other first."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    layer = nn.Linear(512, 512).to(device).requires_grad_(False)
    return layer, torch.randn(512, 16, device=device) / 22, torch.randn(16, 512, device=device) / 4


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(96, 512, generator=g, device=device)


def run(state, x):
    layer, down, up = state
    return torch.relu(layer(x) + x @ (down @ up))
