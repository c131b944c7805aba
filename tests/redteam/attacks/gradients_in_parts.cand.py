"""Of four parts, added up."""

import torch
import torch.nn.functional as F
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8))


def run(m, x, y):
    m.zero_grad()
    total = 0
    for a, b in zip(x.chunk(4), y.chunk(4), strict=True):
        loss = F.mse_loss(m(a), b) / 4
        loss.backward()
        total = total + loss.detach()
    return total
