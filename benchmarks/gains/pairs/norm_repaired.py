"""hand-written-norm: its repair."""

import torch

torch.manual_seed(0)
model = torch.nn.Linear(128, 256)
batch = torch.randn(1024, 128)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(60):
    x = torch.nn.functional.layer_norm(model(batch), (256,))
    loss = x.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
