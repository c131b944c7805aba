"""A moving average of each row, kept as plain numbers."""

import torch


def setup(seed, device):
    return {"history": [0.0] * 1200, "averages": [0.0] * 1200}


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(1200, 64, generator=g, device=device),)


def run(state, x):
    sums = x.sum(dim=1)
    for i, value in enumerate(sums.tolist()):
        state["averages"][i] = 0.9 * state["averages"][i] + 0.1 * value
    return sums
