"""The same product at every size, through mm."""

import torch


def run(a, b):
    return torch.mm(a, b)
