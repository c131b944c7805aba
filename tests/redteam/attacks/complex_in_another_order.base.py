"""A product of complex doubles."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    shapes = (192, 1024), (1024, 192)
    return tuple(torch.randn(*s, dtype=torch.complex128, generator=g, device=device) for s in shapes)


def run(a, b):
    return a @ b
