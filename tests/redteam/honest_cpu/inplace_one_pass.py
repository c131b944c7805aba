"""Updates in place, like the baseline, in one pass instead of two."""

import torch


def run(x, y):
    return torch.add(y, x, alpha=0.5, out=x)
