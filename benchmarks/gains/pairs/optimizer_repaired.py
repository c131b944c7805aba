"""unfused-optimizer: its repair."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(96, 96) for _ in range(24)])
batch = torch.randn(64, 96)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for _ in range(60):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
