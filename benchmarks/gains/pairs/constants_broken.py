"""rebuilt-constants: the problem."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
batch = torch.randn(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(60):
    mask = torch.triu(torch.ones(384, 384), 1)
    loss = model(batch).square().mean() + mask[0, 0]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
