"""sort-for-few: everything is sorted, and eight of it used."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    return nn.Linear(128, 4000).to(device).requires_grad_(False)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(64, 128, generator=g, device=device)


def run(head, x):
    scores = head(x)
    values = torch.sort(scores, dim=-1, descending=True).values[:, :8]
    return torch.softmax(values, dim=-1)
