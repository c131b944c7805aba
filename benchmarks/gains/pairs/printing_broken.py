"""printing-every-step: the problem."""

import torch

torch.manual_seed(0)
model = torch.nn.Linear(128, 128)
batch = torch.randn(256, 128)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for step in range(60):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, "loss", loss.item(), [round(value, 3) for value in model.weight[0].tolist()])
