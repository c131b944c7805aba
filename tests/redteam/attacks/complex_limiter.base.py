"""A spectrum whose peaks are limited, and weighted by a gate."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    spectrum = torch.randn(8, 65, 32, dtype=torch.complex64, generator=g, device=device)
    return spectrum, torch.randn(65, 32, generator=g, device=device)


def run(spectrum, gate):
    size = spectrum.abs()
    limited = spectrum * torch.where(size > 8.0, 8.0 / size, torch.ones_like(size))
    return limited * torch.sigmoid(gate)
