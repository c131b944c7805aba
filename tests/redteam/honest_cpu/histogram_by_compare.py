"""Counts by comparing with each of the eight symbols: exact."""

import torch


def run(x):
    small = x.to(torch.int8)
    return torch.stack([(small == symbol).sum() for symbol in range(8)])
