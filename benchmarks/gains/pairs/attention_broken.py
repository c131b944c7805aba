"""eager-attention: the problem."""

import torch

torch.manual_seed(0)
model = torch.nn.Linear(64, 192)
batch = torch.randn(8, 256, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(40):
    q, k, v = model(batch).view(8, 256, 3, 4, 16).permute(2, 0, 3, 1, 4)
    scores = (q @ k.transpose(-2, -1)) * 0.25
    loss = (torch.softmax(scores, -1) @ v).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
