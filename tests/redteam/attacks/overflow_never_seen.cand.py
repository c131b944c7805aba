"""Nowhere: in a wide type nothing is too large."""

import torch


def run(x):
    return torch.zeros(x.shape, dtype=torch.bool, device=x.device), x.mean()
