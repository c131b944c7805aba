"""Layers trained with torch.optim.Adam, one parameter after the other; moments come with the first step."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 64)).to(device)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(256, 64, generator=g, device=device), torch.randn(256, 64, generator=g, device=device)


def run(state, x, y):
    model, optimizer = state
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
