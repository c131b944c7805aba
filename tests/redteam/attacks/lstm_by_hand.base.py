"""An LSTM."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    return nn.LSTM(16, 24, batch_first=True)


def inputs(seed, device):
    return (torch.randn(8, 20, 16, generator=torch.Generator(device).manual_seed(seed), device=device),)


def run(m, x):
    with torch.no_grad():
        out, (h, c) = m(x)
    return out, h, c
