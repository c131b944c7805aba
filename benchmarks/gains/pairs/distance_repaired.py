"""broadcast-distance: its repair."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
batch = torch.randn(256, 256)
points, others = torch.randn(256, 16), torch.randn(256, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(60):
    distances = torch.cdist(points, others).pow(2)
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
