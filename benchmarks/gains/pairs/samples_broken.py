"""samples-one-by-one: the problem."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Linear(256, 256)
data = torch.randn(8000, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for (batch,) in DataLoader(TensorDataset(data), batch_size=128, shuffle=True):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
