"""float64: a constant of NumPy's makes a part of the network compute in double precision."""

import numpy
import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    basis = torch.from_numpy(numpy.random.default_rng(seed).standard_normal((384, 384)) / 20).to(device)
    return nn.Linear(384, 384).to(device).requires_grad_(False), basis


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(320, 384, generator=g, device=device)


def run(state, x):
    layer, basis = state
    turned = torch.tanh(layer(x)).double() @ basis
    return torch.tanh(turned).float()


tolerance = 1e-3
