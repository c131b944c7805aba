"""Numbers wider than needed. `problem:` names the rule that has to find a line."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(512, 512, dtype=torch.float64)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
batch = torch.randn(256, 512, dtype=torch.float64)
for _ in range(22):
    loss = layer(batch).tanh().square().mean()  # problem: float64
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
