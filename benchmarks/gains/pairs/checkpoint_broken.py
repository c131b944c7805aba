"""recomputed-activations: the problem."""

import torch
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
blocks = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh()) for _ in range(6)]
model = torch.nn.ModuleList(blocks)
batch = torch.randn(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(60):
    x = batch
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    loss = x.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
