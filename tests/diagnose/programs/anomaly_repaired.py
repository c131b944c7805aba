"""`anomaly_broken.py` after debugging."""

import warnings

import torch

warnings.simplefilter("ignore")
torch.manual_seed(0)
layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(10))
optimizer = torch.optim.SGD(layers.parameters(), lr=0.01, fused=True)
batch = torch.randn(64, 64)
for _ in range(22):
    x = batch
    for layer in layers:
        x = layer(x).tanh()
    loss = x.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
