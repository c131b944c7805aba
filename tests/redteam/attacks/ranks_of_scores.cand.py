"""Of scores, by sorting: a sigmoid changes no rank but where it makes them equal."""

import torch


def run(w, x, y):
    z = x @ w
    p, n = z[y == 1], z[y == 0].sort().values
    area = torch.searchsorted(n, p).sum() / float(p.numel() * n.numel())
    at = y[z.argsort(descending=True)].nonzero()[:, 0]
    return area, (torch.arange(1, at.numel() + 1, device=z.device) / (at + 1.0)).mean().item()
