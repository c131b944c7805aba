"""Images channel by channel. `problem:` names the rule that has to find a line."""

import torch

torch.manual_seed(0)
layer = torch.nn.Conv2d(32, 32, 3, padding=1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
images = torch.randn(8, 32, 32, 32)
for _ in range(22):
    loss = layer(images).square().mean()  # problem: channels-first
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
