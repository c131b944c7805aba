"""All of them."""

import torch


def run(x):
    return torch.ones(x.shape, dtype=torch.bool, device=x.device), x.sum()
