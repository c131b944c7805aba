"""SiLU of 4 Mi float32 values: 5 to 10 µs on an H200, less than a launch costs, and small enough for L2."""

import torch
import torch.nn.functional as F


def inputs(seed, device):
    n = 1 << 22 if str(device).startswith("cuda") else 1 << 12
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(n, generator=g, device=device),)


def run(x):
    return F.silu(x)
