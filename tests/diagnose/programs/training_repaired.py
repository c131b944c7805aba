"""`training_broken.py` without what it does in vain."""

import torch

torch.manual_seed(0)
blocks = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(8))
head = torch.nn.Linear(64, 8)
model = torch.nn.ModuleList([blocks, head])
parameters = list(model.parameters())
averages = [p.detach().clone() for p in parameters]
optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
batch = torch.randn(256, 64)


@torch.no_grad()
def evaluate(x):
    for block in blocks:
        x = block(x)
    return x.mean()


for _ in range(22):
    x = batch
    for block in blocks:
        x = block(x)
    loss = head(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        torch._foreach_lerp_(averages, parameters, 0.01)
    score = evaluate(batch[:4])
