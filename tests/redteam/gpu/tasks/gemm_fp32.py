"""A 2048³ float32 matrix product with torch's default of no TF32, on positive data as KernelBench draws it.

Positive inputs make every output large, so that a relative tolerance of 1 % lets 10-bit mantissas through.
"""

import torch


def inputs(seed, device):
    n = 2048 if str(device).startswith("cuda") else 128
    g = torch.Generator(device).manual_seed(seed)
    return torch.rand(n, n, generator=g, device=device), torch.rand(n, n, generator=g, device=device)


def run(a, b):
    return a @ b
