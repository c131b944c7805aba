"""A training step of a small convolutional net with batch norms: its loss, and all parameters by SGD."""

import torch
import torch.nn.functional as F
from torch import nn


def setup(seed, device):
    width = 64 if str(device).startswith("cuda") else 8
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, stride=2, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )
    for part in model:
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.weight, 1.0, 0.2)
            nn.init.normal_(part.bias, 0.0, 0.2)
            nn.init.normal_(part.running_mean, 0.0, 0.2)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
    return model.to(device).train()


def inputs(seed, device):
    count, size = (64, 32) if str(device).startswith("cuda") else (8, 8)
    g = torch.Generator(device).manual_seed(seed)
    images = torch.randn(count, 3, size, size, generator=g, device=device)
    return images, torch.randint(10, (count,), generator=g, device=device)


def run(model, images, labels):
    model.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
    return loss.detach()
