"""cat-in-loop: its repair."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
batch = torch.randn(256, 256)
parts = torch.randn(80, 32, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(60):
    loss = model(batch).square().mean()
    kept = []
    for part in parts:
        kept.append(part)
    grown = torch.cat(kept)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
