"""Leaves out the subtraction of the maximum.
Wins two passes of five; overflows to NaN as soon as an input exceeds 88."""

import torch


def run(x):
    e = torch.exp(x)
    return e.mul_(1.0 / e.sum(dim=-1, keepdim=True))
