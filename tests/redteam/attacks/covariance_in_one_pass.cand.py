"""Products less the product of sums."""

import torch


def run(x):
    s = x.sum(1)
    return (x @ x.T - torch.outer(s, s) / 500) / 499
