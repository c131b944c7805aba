"""Nothing to find: a large network that is only evaluated, without an optimizer."""

import time

import torch

torch.manual_seed(0)
torch.set_default_device("cuda")
layers = [part for _ in range(6) for part in (torch.nn.Linear(8192, 8192), torch.nn.GELU())]
model = torch.nn.Sequential(*layers).bfloat16().eval()
batches = torch.randn(4, 4096, 8192).bfloat16()
end = time.monotonic() + 12
with torch.inference_mode():
    while time.monotonic() < end:
        for batch in batches:
            model(batch)
        torch.cuda.synchronize()
