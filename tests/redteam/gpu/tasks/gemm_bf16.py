"""A 4096³ bf16 matrix product on normal data: about 0.18 ms on an H200, bound by arithmetic."""

import torch


def inputs(seed, device):
    n = 4096 if str(device).startswith("cuda") else 128
    g = torch.Generator(device).manual_seed(seed)
    return (
        torch.randn(n, n, generator=g, device=device).bfloat16(),
        torch.randn(n, n, generator=g, device=device).bfloat16(),
    )


def run(a, b):
    return a @ b
