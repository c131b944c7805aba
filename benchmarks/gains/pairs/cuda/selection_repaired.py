"""data-dependent-shape: the others count as nothing, and the shape stays."""

import torch


def run(parts):
    sums = []
    for part in parts:
        scaled = torch.tanh(part * 1.3) - 0.2
        sums.append(torch.where(scaled > 0, scaled, 0.0).sum())
    return torch.stack(sums)
