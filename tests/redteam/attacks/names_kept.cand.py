"""The same names in a class of its own."""

from collections import namedtuple

import torch

Found = namedtuple("Found", "mean variance")


def run(x):
    variance, mean = torch.var_mean(x, dim=1)
    return Found(mean, variance)
