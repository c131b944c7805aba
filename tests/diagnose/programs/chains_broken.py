"""Operators in a row over a large tensor. `problem:` names the rule that has to find a line."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
batch = torch.randn(128, 64)
field = torch.randn(1024, 1024)
for _ in range(22):
    shifted = (field * 1.5 + 0.25).abs().sqrt() - 0.5  # problem: pointwise-chain
    loss = layer(batch).square().mean() + shifted[0, 0]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
