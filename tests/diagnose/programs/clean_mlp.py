"""Nothing to find: a perceptron with bfloat16 products and a fused optimizer."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
batch, targets = torch.randn(256, 256), torch.randint(0, 64, (256,))
for _ in range(22):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = model(batch)
    loss = torch.nn.functional.cross_entropy(scores.float(), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
