"""unfused-optimizer: AdamW over the tensors of a network of many narrow layers."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    layers = [part for _ in range(24) for part in (nn.Linear(64, 64), nn.SiLU())]
    model = nn.Sequential(*layers).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(192, 64, generator=g, device=device)


def run(state, x):
    model, optimizer = state
    loss = (model(x) + x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


tolerance = 1e-3
