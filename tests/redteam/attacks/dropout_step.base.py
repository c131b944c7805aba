"""A training step with dropout: convolutions with biases before norms, ReLUs."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(1024, 10),
    ).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


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
