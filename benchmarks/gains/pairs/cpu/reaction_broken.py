"""unused-graph: a reaction runs forward in time by a trained network's rates, nothing being learned."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    rates = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 12)).to(device)
    return rates, torch.randn(12, 30, device=device) / 4


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(32, 12, generator=g, device=device)


def run(state, mixture):
    rates, spectra = state
    seen = []
    for _ in range(60):
        half = mixture + 0.025 * rates(mixture)
        mixture = mixture + 0.05 * rates(half)
        seen.append(mixture @ spectra)
    return mixture.detach(), torch.stack(seen).detach()
