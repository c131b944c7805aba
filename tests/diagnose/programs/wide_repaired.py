"""`wide_broken.py` with its products in bfloat16."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(768, 768)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
batch = torch.randn(512, 768)
for _ in range(22):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = layer(batch).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
