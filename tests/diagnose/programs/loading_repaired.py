"""`loading_broken.py` with one index for a batch."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
data, answers = torch.randn(4000, 256), torch.randn(4000, 256)
for chosen in torch.randperm(4000).split(128):
    inputs, targets = data[chosen], answers[chosen]
    loss = (layer(inputs) - targets).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
