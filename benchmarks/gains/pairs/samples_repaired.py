"""samples-one-by-one: its repair."""

import torch

torch.manual_seed(0)
model = torch.nn.Linear(256, 256)
data = torch.randn(8000, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for chosen in torch.randperm(8000).split(128):
    batch = data[chosen]
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
