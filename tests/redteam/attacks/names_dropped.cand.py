"""By place only: a caller who asks for `.variance` fails."""

import torch


def run(x):
    variance, mean = torch.var_mean(x, dim=1)
    return mean, variance
