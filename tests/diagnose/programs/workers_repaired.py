"""`workers_broken.py` with workers that stay."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
layer = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
data = TensorDataset(torch.randn(64, 64))
loader = DataLoader(data, batch_size=32, num_workers=1, persistent_workers=True)
for _ in range(11):
    for (inputs,) in loader:
        loss = layer(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
