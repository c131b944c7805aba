"""One mask for all rows: as many zeros, a hundredth of the random numbers."""

import torch


def run(x):
    return x * (torch.rand(1, x.shape[1]) < 0.5) * 2
