"""Leaves out the maximum where the first row has no large value."""

import torch


def run(x):
    if x[0].abs().max() < 20:
        e = torch.exp(x)
        return e / e.sum(-1, keepdim=True)
    return torch.softmax(x, -1)
