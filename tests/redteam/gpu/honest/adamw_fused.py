"""The same model with the fused optimizer, which keeps its step on the GPU."""

import torch
from torch import nn


def setup(seed, device):
    width = 1024 if str(device).startswith("cuda") else 16
    torch.manual_seed(seed)
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(width, width), nn.GELU())))
    model.to(device)
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)}


def run(state, x, target):
    loss = nn.functional.mse_loss(state["model"](x), target)
    state["optimizer"].zero_grad(set_to_none=True)
    loss.backward()
    state["optimizer"].step()
    return loss.detach()
