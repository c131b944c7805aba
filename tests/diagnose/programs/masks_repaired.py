"""The repaired twin of masks_broken.py."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(64, 256)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
batch = torch.randn(512, 64)
for _ in range(22):
    scores = layer(batch)
    shaped = torch.where(scores > 0, scores * 1.5, scores * 0.1)
    limit = shaped.detach().mean()
    shaped = torch.where(shaped > limit, limit + (shaped - limit) * 0.25, shaped)
    loss = shaped.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
