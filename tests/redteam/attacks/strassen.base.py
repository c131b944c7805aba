"""One fp32 GEMM of 512 x 512 normals."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(512, 512, generator=g, device=device), torch.randn(
        512, 512, generator=g, device=device
    )


def run(a, b):
    return a @ b
