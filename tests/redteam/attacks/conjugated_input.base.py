"""An input that torch conjugates when it is read: its memory holds other values."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(64, 64, dtype=torch.complex64, generator=g, device=device)
    return x.mH, x.conj().imag


def run(x, y):
    return x @ x + y
