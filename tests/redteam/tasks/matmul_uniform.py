"""One fp32 GEMM whose inputs are uniform in [0, 1), the way KernelBench draws them."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.rand(768, 768, generator=g, device=device), torch.rand(768, 768, generator=g, device=device)


def run(a, b):
    return a @ b
