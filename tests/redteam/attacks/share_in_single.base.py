"""A share of rows as a mean of doubles."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(150, 7, generator=g, device=device), torch.randint(
        0, 7, (150,), generator=g, device=device
    )


def run(x, y):
    return (x.argmax(1) == y).double().mean().item()
