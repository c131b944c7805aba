"""A product of complex matrices."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.complex(
        torch.randn(64, 64, generator=g, device=device), torch.randn(64, 64, generator=g, device=device)
    ), torch.complex(
        torch.randn(64, 64, generator=g, device=device), torch.randn(64, 64, generator=g, device=device)
    )


def run(a, b):
    return a @ b
