"""broadcast-distance: distances to the centres of a radial basis, by a difference of all pairs."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    return torch.randn(160, 24, device=device), nn.Linear(160, 160).to(device).requires_grad_(False)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(256, 24, generator=g, device=device)


def run(state, x):
    centres, head = state
    far = (x[:, None, :] - centres[None, :, :]).pow(2).sum(dim=-1)
    return head(torch.exp(-far / 48))


tolerance = 1e-4
