"""pointwise-chain: the gate compiled into one kernel."""

import torch


@torch.compile
def gate(y):
    return torch.sigmoid(y * 1.5 + 0.25).mul(y).sub(0.1).abs().sqrt()


def run(weight, x):
    return gate(x @ weight)
