"""A GEMM judged at three sizes; a gain at one of them must not hide a loss at another."""

import torch

shapes = [(512, 512, 512), (384, 768, 384), (256, 1024, 256)]


def inputs(seed, device, shape):
    m, k, n = shape
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(m, k, generator=g, device=device), torch.randn(k, n, generator=g, device=device)


def run(a, b):
    return a @ b
