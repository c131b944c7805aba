"""A step that gives its caller gradients of the caller's own."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    return nn.Linear(64, 32).to(device)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(48, 64, generator=g, device=device), torch.randn(48, 32, generator=g, device=device)


def run(layer, x, wanted):
    layer.zero_grad(set_to_none=True)
    loss = nn.functional.mse_loss(layer(x), wanted)
    loss.backward()
    return loss.detach(), layer.weight.grad.clone(), layer.bias.grad.clone()
