"""Nothing to find: a perceptron in bfloat16 with a fused optimizer."""

import torch

torch.manual_seed(0)
torch.set_default_device("cuda")
layers = [part for _ in range(4) for part in (torch.nn.Linear(4096, 4096), torch.nn.GELU())]
model = torch.nn.Sequential(*layers).bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
batch = torch.randn(8192, 4096).bfloat16()
for _ in range(200):
    loss = torch.nn.functional.mse_loss(model(batch), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
