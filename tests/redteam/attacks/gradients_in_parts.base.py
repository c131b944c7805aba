"""Gradients of a batch."""

import torch
import torch.nn.functional as F
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8))


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(128, 32, generator=g, device=device), torch.randn(128, 8, generator=g, device=device)


def run(m, x, y):
    m.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    return loss.detach()
