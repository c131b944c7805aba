"""Products that need not be as large. `problem:` names the rule that has to find a line."""

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
    picked = torch.nn.functional.one_hot(chosen, 1000).float() @ table  # problem: one-hot-product
    scaled = torch.diag(scale) @ wide  # problem: diagonal-product
    solved = torch.linalg.inv(system) @ right  # problem: inverse-product
    column = first @ second @ vector  # problem: chain-order
    similar = (points[:, None] * others[None]).sum(-1)  # problem: broadcast-product
    distances = (points[:, None] - others[None]).pow(2).sum(-1)  # problem: broadcast-distance
    best = torch.sort(scores, dim=-1, descending=True)[0][:, :10]  # problem: sort-for-few
    lifted = bias.repeat(400, 1) * plane  # problem: materialised-repeat
    turned = tall.t().contiguous() @ thin  # problem: copy-before-product
    loss = layer(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
