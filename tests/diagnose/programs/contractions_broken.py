"""Three factors in one einsum, which takes them from the left. `problem:` names the rule."""

import torch

torch.manual_seed(0)
# With it torch finds the order.
torch.backends.opt_einsum.enabled = False
left = torch.randn(300, 200, requires_grad=True)
right = torch.randn(200, 300, requires_grad=True)
optimizer = torch.optim.SGD([left, right], lr=1e-6, fused=True)
batch = torch.randn(300, 8)
for _ in range(22):
    mixed = torch.einsum("ij,jk,kl->il", left, right, batch)  # problem: einsum-order
    loss = mixed.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
