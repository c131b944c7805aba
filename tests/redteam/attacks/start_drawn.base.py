"""One row of several, chosen by a tensor of one small integer, and a scale that only probes change."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    row = torch.randint(0, 3, (), generator=g, device=device)
    return torch.randn(3, 4096, generator=g, device=device), row, torch.full((1,), 0.5, device=device)


def run(x, row, scale):
    return torch.tanh(x[row] * scale)
