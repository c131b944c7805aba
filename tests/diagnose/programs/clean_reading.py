"""Nothing to find: reads one number now and then, and loops over layers that depend on each other."""

import torch

torch.manual_seed(0)
layers = torch.nn.ModuleList(torch.nn.Linear(128, 128) for _ in range(12))
optimizer = torch.optim.SGD(layers.parameters(), lr=0.01, momentum=0.9, fused=True)
batch = torch.randn(512, 128)
for step in range(22):
    x = batch
    for layer in layers:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = torch.nn.functional.gelu(layer(x))
    loss = x.float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(f"{step}: {loss.item():.4f}")
