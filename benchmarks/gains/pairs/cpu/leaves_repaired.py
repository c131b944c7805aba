"""channels-first: pixel by pixel."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(nn.Conv2d(3, 24, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(24, 48, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Conv2d(48, 96, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(96, 20)),
    )
    return model.to(device, memory_format=torch.channels_last).requires_grad_(False)


def run(model, photographs):
    return torch.softmax(model(photographs.to(memory_format=torch.channels_last)), dim=1)
