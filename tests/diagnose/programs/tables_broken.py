"""What could be computed once, in functions that a loop calls. `problem:` names the rule."""

import math

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(192, 192)
down, up = torch.randn(192, 8) / 14, torch.randn(8, 192) / 3
optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3, fused=True)
batch = torch.randn(48, 192)


def placed(x):
    steps = torch.arange(600)[:, None] / 10000 ** (torch.arange(96) / 96)
    waves = torch.cat([steps.sin().exp() * math.pi, steps.cos().exp()], dim=1)  # problem: rebuilt-constants
    return x + waves[: x.shape[0]]


def adapted(x):
    return layer(x) + x @ (down @ up)  # problem: chain-order


for _ in range(22):
    loss = adapted(placed(batch)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
