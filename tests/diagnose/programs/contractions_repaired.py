"""The repaired twin of contractions_broken.py."""

import torch

torch.manual_seed(0)
left = torch.randn(300, 200, requires_grad=True)
right = torch.randn(200, 300, requires_grad=True)
optimizer = torch.optim.SGD([left, right], lr=1e-6, fused=True)
batch = torch.randn(300, 8)
for _ in range(22):
    mixed = torch.einsum("ij,jl->il", left, torch.einsum("jk,kl->jl", right, batch))
    loss = mixed.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
