"""By counting."""

import torch


def run(x):
    counts = torch.bincount(x, minlength=50)
    return int((counts > 0).sum()) * 1000 + int(counts[7])
