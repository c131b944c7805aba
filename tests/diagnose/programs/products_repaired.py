"""`products_broken.py` with the cheaper way to the same numbers."""

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(128, 128)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, fused=True)
batch = torch.randn(128, 128)
table = torch.randn(1000, 64)
chosen = torch.randint(0, 1000, (512,))
scale = torch.rand(300)
wide = torch.randn(300, 300)
system = torch.randn(250, 250) + 250 * torch.eye(250)
right = torch.randn(250, 250)
first, second, vector = torch.randn(300, 300), torch.randn(300, 300), torch.randn(300, 1)
points, others = torch.randn(200, 16), torch.randn(200, 16)
scores = torch.randn(24, 1000)
bias = torch.randn(1, 600)
plane = torch.randn(400, 600)
tall, thin = torch.randn(800, 400), torch.randn(800, 4)
for _ in range(22):
    picked = table[chosen]
    scaled = scale[:, None] * wide
    solved = torch.linalg.solve(system, right)
    column = first @ (second @ vector)
    similar = points @ others.t()
    distances = torch.cdist(points, others).pow(2)
    best = torch.topk(scores, 10).values
    lifted = bias * plane
    turned = tall.t() @ thin
    loss = layer(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
