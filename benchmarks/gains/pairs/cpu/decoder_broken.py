"""eager-attention: causal attention written out, in a training step of one block."""

import torch
from torch import nn

HEADS, WIDTH, LENGTH = 4, 128, 192


def setup(seed, device):
    torch.manual_seed(seed)
    parts = {
        "query": nn.Linear(WIDTH, WIDTH),
        "key": nn.Linear(WIDTH, WIDTH),
        "value": nn.Linear(WIDTH, WIDTH),
    }
    model = nn.ModuleDict({**parts, "out": nn.Linear(WIDTH, 64)}).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.01, fused=True)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(6, LENGTH, WIDTH, generator=g, device=device)


def heads(x):
    return x.view(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)


def run(state, x):
    model, optimizer = state
    q, k, v = (heads(model[name](x)) for name in ("query", "key", "value"))
    scores = q @ k.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=x.device).triu(1)
    weights = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
    mixed = (weights @ v).transpose(1, 2).reshape(x.shape)
    loss = model["out"](mixed).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
