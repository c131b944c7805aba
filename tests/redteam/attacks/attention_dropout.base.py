"""A training step of causal attention with biases, and dropout behind it."""

import torch
from torch import nn

HEADS, WIDTH, LENGTH = 4, 64, 48


def setup(seed, device):
    torch.manual_seed(seed)
    model = nn.ModuleDict({name: nn.Linear(WIDTH, WIDTH) for name in "qkvo"})
    model["norm"], model["head"] = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32)
    model.to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(4, LENGTH, WIDTH, generator=g, device=device)
    return x, torch.randint(0, 32, (4, LENGTH), generator=g, device=device)


def run(state, x, y):
    model, optimizer = state
    q, k, v = (model[name](x).view(len(x), LENGTH, HEADS, -1).transpose(1, 2) for name in "qkv")
    scores = q @ k.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
    ahead = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=x.device).triu(1)
    found = scores.masked_fill(ahead, float("-inf")).softmax(-1) @ v
    found = model["o"](found.transpose(1, 2).reshape(x.shape))
    logits = model["head"](model["norm"](x + nn.functional.dropout(found, 0.1)))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
