"""With exp(x) - 1, as most kernels have it: off by half a step of 1 near zero."""

import torch


def run(x):
    return torch.where(x > 0, x, torch.exp(x) - 1)
