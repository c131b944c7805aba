"""parameters-in-python: a moving average of a network's weights, tensor by tensor, in a training step."""

import copy

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    layers = [part for _ in range(20) for part in (nn.Linear(48, 48), nn.Tanh())]
    model = nn.Sequential(*layers).to(device)
    average = copy.deepcopy(model).requires_grad_(False)
    return model, average, torch.optim.SGD(model.parameters(), lr=0.01, fused=True)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(128, 48, generator=g, device=device)


def run(state, x):
    model, average, optimizer = state
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for kept, new in zip(average.parameters(), model.parameters(), strict=True):
            kept.mul_(0.99).add_(new, alpha=0.01)
    return loss.detach()
