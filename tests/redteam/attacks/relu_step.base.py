"""A training step of a small net with a ReLU."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(64, 256, generator=g, device=device)
    return x, torch.randint(0, 10, (64,), generator=g, device=device)


def run(state, x, y):
    model, optimizer = state
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
