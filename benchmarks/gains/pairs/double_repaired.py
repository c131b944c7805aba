"""float64: its repair."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(384, 384), torch.nn.Tanh(), torch.nn.Linear(384, 384)).to(
    torch.float32
)
batch = torch.randn(256, 384, dtype=torch.float32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(40):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
