"""Nothing to find: convolutions over images that lie pixel by pixel."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3, padding=1)
).to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
images = torch.randn(8, 8, 32, 32).to(memory_format=torch.channels_last)
for _ in range(22):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = model(images)
    loss = features.float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
