"""A loop over rows in Python: the classic slow start."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(256, 256, generator=g, device=device),)


def run(x):
    rows = []
    for i in range(x.shape[0]):
        row = x[i]
        rows.append((row - row.mean()) / (row.std() + 1e-6))
    return torch.stack(rows)
