"""A training step of causal attention, written out."""

import torch
from torch import nn

HEADS, WIDTH, LENGTH = 4, 128, 96


def setup(seed, device):
    torch.manual_seed(seed)
    model = nn.ModuleDict({"qkv": nn.Linear(WIDTH, 3 * WIDTH), "out": nn.Linear(WIDTH, 64)}).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(4, LENGTH, WIDTH, generator=g, device=device)


def heads(x):
    return x.view(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)


def run(state, x):
    model, optimizer = state
    q, k, v = (heads(part) for part in model["qkv"](x).chunk(3, dim=-1))
    scores = q @ k.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=x.device).triu(1)
    weights = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
    mixed = (weights @ v).transpose(1, 2).reshape(x.shape)
    loss = model["out"](mixed).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
