"""scalar-reads: the problem."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
batch = torch.randn(256, 256)
scores = torch.rand(400)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(60):
    loss = model(batch).square().mean()
    total = 0.0
    for i in range(400):
        total += scores[i].item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
