"""A training step in which a bias comes right before a norm, and has no gradient but rounding."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Tanh(), nn.Flatten(), nn.Linear(1568, 5))
    model.to(device)
    nn.init.normal_(model[1].weight, 1.0, 0.2)
    nn.init.normal_(model[1].bias, 0.0, 0.2)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(16, 3, 16, 16, generator=g, device=device)


def run(state, x):
    model, optimizer = state
    loss = torch.logsumexp(model(x), dim=1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
