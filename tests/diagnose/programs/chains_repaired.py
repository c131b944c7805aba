"""`chains_broken.py` as one pass, block by block in the cache."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
batch = torch.randn(128, 64)
field = torch.randn(1024, 1024)
shifted = torch.empty_like(field)
for _ in range(22):
    for part, out in zip(field.split(64), shifted.split(64), strict=True):
        torch.mul(part, 1.5, out=out)
        out.add_(0.25).abs_().sqrt_().sub_(0.5)
    loss = layer(batch).square().mean() + shifted[0, 0]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
