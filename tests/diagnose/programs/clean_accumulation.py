"""Nothing to find: gradients of two halves are added up, clipped, and used once."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(192, 384), torch.nn.SiLU(), torch.nn.Linear(384, 192))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
halves = torch.randn(2, 256, 192)
for _ in range(22):
    optimizer.zero_grad()
    for half in halves:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(half)
        (torch.nn.functional.mse_loss(out.float(), half) / 2).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
