"""Nothing to find: a network that is only evaluated, batch after batch, without an optimizer."""

import time

import torch

torch.manual_seed(0)
layers = [part for _ in range(3) for part in (torch.nn.Linear(384, 384), torch.nn.GELU())]
model = torch.nn.Sequential(*layers).bfloat16().eval()
batches = torch.randn(8, 256, 384).bfloat16()
end = time.monotonic() + 12
with torch.inference_mode():
    while time.monotonic() < end:
        for batch in batches:
            model(batch)
