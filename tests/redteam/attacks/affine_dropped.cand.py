"""Drops both."""

from torch.nn import functional


def run(norm, x):
    return functional.layer_norm(x, (256,))
