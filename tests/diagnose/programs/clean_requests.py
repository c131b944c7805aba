"""Nothing to find: request after request through layers of one size, each of which needs the one before."""

import time

import torch

torch.manual_seed(0)
parts = [part for _ in range(16) for part in (torch.nn.Linear(32, 32), torch.nn.LayerNorm(32))]
model = torch.nn.Sequential(*parts).eval()
requests = torch.randn(512, 8, 32)
found = []
end = time.monotonic() + 3
with torch.inference_mode():
    while time.monotonic() < end:
        for request in requests[:256]:
            found.append(model(request).sum())
        found = [model(request).sum() for request in requests[256:]]
