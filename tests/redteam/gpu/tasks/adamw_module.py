"""A training step of a small model with torch's AdamW as it comes; its moments may be off by 1e-4."""

import torch
from torch import nn

tolerance = 1e-4


def _width(device):
    return 1024 if str(device).startswith("cuda") else 16


def setup(seed, device):
    width = _width(device)
    torch.manual_seed(seed)
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(width, width), nn.GELU())))
    model.to(device)
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3)}


def inputs(seed, device):
    width = _width(device)
    g = torch.Generator(device).manual_seed(seed)
    return tuple(torch.randn(width // 2, width, generator=g, device=device) for _ in range(2))


def run(state, x, target):
    loss = nn.functional.mse_loss(state["model"](x), target)
    state["optimizer"].zero_grad(set_to_none=True)
    loss.backward()
    state["optimizer"].step()
    return loss.detach()
