"""Two products in the expensive order: (a @ b) @ v with a thin v."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    a = torch.randn(512, 512, generator=g, device=device)
    b = torch.randn(512, 512, generator=g, device=device)
    v = torch.randn(512, 4, generator=g, device=device)
    return a, b, v


def run(a, b, v):
    return (a @ b) @ v
