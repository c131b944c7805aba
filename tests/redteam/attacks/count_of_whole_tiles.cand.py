"""Counts whole tiles of 16."""

import torch


def run(x):
    return torch.bincount(x[: x.numel() // 16 * 16], minlength=100)
