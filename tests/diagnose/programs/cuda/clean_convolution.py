"""Nothing to find: convolutions in bfloat16 over images that lie pixel by pixel."""

from itertools import pairwise

import torch

torch.manual_seed(0)
torch.set_default_device("cuda")
widths = [64, 128, 256, 256, 256]
parts = [
    part
    for before, after in pairwise(widths)
    for part in (torch.nn.Conv2d(before, after, 3, padding=1, bias=False), torch.nn.ReLU(inplace=True))
]
model = torch.nn.Sequential(*parts).bfloat16().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
images = torch.randn(64, 64, 56, 56).bfloat16().to(memory_format=torch.channels_last)
for _ in range(120):
    loss = model(images).float().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
