"""Pauses that a program takes by itself. `problem:` names the rule that has to find a line."""

import gc
import time

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(128, 128)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
batch = torch.randn(256, 128)
for _ in range(22):
    loss = layer(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    gc.collect()  # problem: collecting-garbage
    time.sleep(0.05)  # problem: sleeping
