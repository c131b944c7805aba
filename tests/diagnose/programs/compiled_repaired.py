"""`compiled_broken.py` with batches of one size, and output outside."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)


@torch.compile(backend="eager", dynamic=False)
def transform(x):
    return layer(x).relu()


@torch.compile(backend="eager")
def report(x):
    return layer(x).relu()


for _ in range(22):
    batch = torch.randn(40, 64)
    loss = transform(batch).square().mean()
    loss = loss + report(batch[:8]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(end="")
