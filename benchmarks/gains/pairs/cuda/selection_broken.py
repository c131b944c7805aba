"""data-dependent-shape: a mask selects elements, and the host waits to learn how many, part by part."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(32, 400_000, generator=g, device=device)


def run(parts):
    sums = []
    for part in parts:
        scaled = torch.tanh(part * 1.3) - 0.2
        sums.append(scaled[scaled > 0].sum())
    return torch.stack(sums)


tolerance = 1e-4
