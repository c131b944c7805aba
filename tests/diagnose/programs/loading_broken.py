"""Batches made in the loop, sample by sample. `problem:` names the rule that has to find a line."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
layer = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
data = TensorDataset(torch.randn(4000, 256), torch.randn(4000, 256))
loader = DataLoader(data, batch_size=128, shuffle=True)
for inputs, targets in loader:  # problem: loading-in-the-loop samples-one-by-one
    loss = (layer(inputs) - targets).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
