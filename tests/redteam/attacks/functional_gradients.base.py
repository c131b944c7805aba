"""Gradients that are returned, and not left in `.grad`."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.Linear(1024, 10),
    ).to(device)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(16, 3, 32, 32, generator=g, device=device)
    return x, torch.randint(0, 10, (16,), generator=g, device=device)


def run(model, x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    return loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))
