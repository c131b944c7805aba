"""Two products, the first with an identity: a rotation that nothing has trained yet."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    rotation, head = nn.Linear(128, 128, bias=False), nn.Linear(128, 32)
    nn.init.eye_(rotation.weight)
    return nn.ModuleList([rotation, head]).to(device).requires_grad_(False)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(256, 128, generator=g, device=device)


def run(layers, x):
    rotation, head = layers
    return torch.tanh(head(rotation(x)))
