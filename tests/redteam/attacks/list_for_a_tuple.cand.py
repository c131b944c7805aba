"""In a list, as a compiled extension returns them."""

import torch


def run(x):
    variance, mean = torch.var_mean(x, dim=1)
    return [mean, variance]
