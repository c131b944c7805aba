"""hand-written-norm: the problem."""

import torch

torch.manual_seed(0)
model = torch.nn.Linear(128, 256)
batch = torch.randn(1024, 128)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(60):
    x = model(batch)
    centred = x - x.mean(-1, keepdim=True)
    spread = centred.pow(2).mean(-1, keepdim=True)
    loss = (centred / (spread + 1e-5).sqrt()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
