"""Writes there directly."""

import torch


def run(x, out):
    return torch.exp(x, out=out).mul_(2)
