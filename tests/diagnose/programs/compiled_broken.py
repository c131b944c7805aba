"""What torch.compile cannot keep. `problem:` names the rule that has to find a line."""

import torch

torch._dynamo.config.recompile_limit = 64
torch.manual_seed(0)
layer = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)


@torch.compile(backend="eager", dynamic=False)
def transform(x):
    return layer(x).relu()


@torch.compile(backend="eager")
def report(x):
    y = layer(x)
    print(end="")  # problem: graph-break
    return y.relu()


for step in range(22):
    batch = torch.randn(16 + step, 64)
    loss = transform(batch).square().mean()  # problem: recompiling
    loss = loss + report(batch[:8]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
