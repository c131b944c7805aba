"""A training step of convolution, batch norm and ReLU with Adam."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AvgPool2d(8),
        nn.Flatten(),
        nn.Linear(512, 10),
    ).to(device)
    return model, torch.optim.Adam(model.parameters(), lr=0.001)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(16, 3, 32, 32, generator=g, device=device)
    return x, torch.randint(0, 10, (16,), generator=g, device=device)


def run(state, x, y):
    model, optimizer = state
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
