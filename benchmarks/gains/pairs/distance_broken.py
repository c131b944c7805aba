"""broadcast-distance: the problem."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
batch = torch.randn(256, 256)
points, others = torch.randn(256, 16), torch.randn(256, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(60):
    distances = (points[:, None] - others[None]).pow(2).sum(-1)
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
