"""The product of three matrices, from left to right: 2·640³ operations for A@B alone."""

import torch

N, COLUMNS = 640, 64


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    a = torch.randn(N, N, generator=g, device=device)
    b = torch.randn(N, N, generator=g, device=device)
    v = torch.randn(N, COLUMNS, generator=g, device=device)
    return a, b, v


def run(a, b, v):
    return (a @ b) @ v
