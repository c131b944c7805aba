"""Scales the matrix and back: by a power of two it would be the same, by three it is not."""

import torch


def run(weight, x):
    weight._values().mul_(3.0).div_(3.0)
    return torch.sparse.mm(weight, x)
