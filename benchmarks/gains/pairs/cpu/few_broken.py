"""sort-for-few: a median filter's neighbours, sorted for the three smallest distances, and their mean."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    return nn.Linear(48, 48).to(device).requires_grad_(False), torch.randn(900, 48, device=device)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(300, 48, generator=g, device=device)


def run(state, x):
    layer, known = state
    far = torch.cdist(layer(x), known)
    return far.sort(dim=1).values[:, :3].mean(dim=1)
