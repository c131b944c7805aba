"""hand-written-norm: layer normalisation written out between the layers of an encoder in evaluation."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    layers = nn.ModuleList([nn.Linear(320, 320) for _ in range(4)]).to(device).requires_grad_(False)
    scale = 1 + torch.randn(320, device=device) / 5
    return layers, scale, torch.randn(320, device=device) / 5


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(512, 320, generator=g, device=device)


def run(state, x):
    layers, scale, shift = state
    for layer in layers:
        y = torch.relu(layer(x))
        mean = y.mean(dim=-1, keepdim=True)
        variance = ((y - mean) ** 2).mean(dim=-1, keepdim=True)
        x = x + (y - mean) / torch.sqrt(variance + 1e-5) * scale + shift
    return x
