"""cat-in-loop: households' use of power is foretold hour by hour, and each hour joined to those before."""

import torch
from torch import nn

HOURS, SEEN = 48, 24


def setup(seed, device):
    torch.manual_seed(seed)
    layers = [nn.Flatten(), nn.Linear(SEEN * 6, 160), nn.SiLU(), nn.Linear(160, 6)]
    return nn.Sequential(*layers).to(device).requires_grad_(False)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(64, 336, 6, generator=g, device=device)


def run(model, used):
    usual, spread = used.mean(dim=1, keepdim=True), used.std(dim=1, keepdim=True)
    series = (used - usual) / (spread + 1e-3)
    for _ in range(HOURS):
        following = series[:, -1] + model(series[:, -SEEN:])
        series = torch.cat([series, following[:, None]], dim=1)
    return series[:, -HOURS:] * (spread + 1e-3) + usual
