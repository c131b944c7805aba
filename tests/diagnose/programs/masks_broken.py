"""Elements picked by a mask and put back. `problem:` names the rule that has to find a line."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(64, 256)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
batch = torch.randn(512, 64)
for _ in range(22):
    scores = layer(batch)
    steep = scores > 0
    shaped = torch.zeros_like(scores)
    shaped[steep] = scores[steep] * 1.5  # problem: masked-elements
    shaped[~steep] = scores[~steep] * 0.1  # problem: masked-elements
    limit = shaped.detach().mean()
    loud = shaped > limit
    shaped[loud] = limit + (shaped[loud] - limit) * 0.25  # problem: masked-elements
    loss = shaped.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
