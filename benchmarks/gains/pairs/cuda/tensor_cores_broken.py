"""tf32-off: a training step in float32, as PyTorch is set by default."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    layers = [part for _ in range(4) for part in (nn.Linear(2048, 2048), nn.GELU())]
    model = nn.Sequential(*layers).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.01, fused=True)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(4096, 2048, generator=g, device=device)


def run(state, x):
    model, optimizer = state
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


tolerance = 2e-2
