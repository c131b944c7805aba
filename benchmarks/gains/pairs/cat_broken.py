"""cat-in-loop: the problem."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
batch = torch.randn(256, 256)
parts = torch.randn(80, 32, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(60):
    loss = model(batch).square().mean()
    grown = torch.zeros(0, 64)
    for part in parts:
        grown = torch.cat([grown, part])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
