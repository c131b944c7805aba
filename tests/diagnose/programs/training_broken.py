"""What autograd and optimizers do in vain. `problem:` names the rule that has to find a line."""

import torch
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
blocks = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(8))
head = torch.nn.Linear(64, 8)
model = torch.nn.ModuleList([blocks, head])
averages = [p.detach().clone() for p in model.parameters()]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
batch = torch.randn(256, 64)


def evaluate(x):
    for block in blocks:
        x = block(x)  # problem: unused-graph
    return x.mean()


for _ in range(22):
    x = batch
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)  # problem: recomputed-activations
    loss = head(x).square().mean()
    optimizer.zero_grad(set_to_none=False)  # problem: zero-grad-fills
    loss.backward()
    optimizer.step()  # problem: unfused-optimizer
    with torch.no_grad():
        for average, parameter in zip(averages, model.parameters(), strict=True):
            average.lerp_(parameter, 0.01)  # problem: parameters-in-python
    score = evaluate(batch[:4])
