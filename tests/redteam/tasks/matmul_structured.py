"""A GEMM judged on dense and on diagonal left operands, each of them a shape of its own."""

import torch

shapes = [("dense", 512), ("diagonal", 512)]


def inputs(seed, device, shape):
    kind, n = shape
    g = torch.Generator(device).manual_seed(seed)
    if kind == "diagonal":
        a = torch.diag(torch.randn(n, generator=g, device=device))
    else:
        a = torch.randn(n, n, generator=g, device=device)
    return a, torch.randn(n, n, generator=g, device=device)


def run(a, b):
    return a @ b
