"""`pauses_broken.py` without its pauses."""

import gc

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(128, 128)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
batch = torch.randn(256, 128)
gc.collect()
gc.freeze()
for _ in range(22):
    loss = layer(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
