"""Large products in float32. `problem:` names the rule that has to find a line."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(768, 768)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
batch = torch.randn(512, 768)
for _ in range(22):
    loss = layer(batch).square().mean()  # problem: bfloat16-products
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
