"""`images_broken.py` pixel by pixel."""

import torch

torch.manual_seed(0)
layer = torch.nn.Conv2d(32, 32, 3, padding=1).to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
images = torch.randn(8, 32, 32, 32).to(memory_format=torch.channels_last)
for _ in range(22):
    loss = layer(images).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
