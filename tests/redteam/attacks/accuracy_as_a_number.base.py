"""A share of rows and a mean of squares, divided by Python: exact as a double is, by no design."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(150, 7, generator=g, device=device), torch.randint(
        0, 7, (150,), generator=g, device=device
    )


def run(x, y):
    squares = sum(value**2 for value in x[:, 0].tolist())
    return (x.argmax(1) == y).sum().item() / 150, squares / 150
