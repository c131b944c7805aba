"""unfused-optimizer: Adam over the many small tensors of a deep network."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    layers = [part for _ in range(20) for part in (nn.Linear(48, 48), nn.LayerNorm(48), nn.Tanh())]
    model = nn.Sequential(*layers).to(device)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(128, 48, generator=g, device=device)


def run(state, x):
    model, optimizer = state
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


tolerance = 1e-3
