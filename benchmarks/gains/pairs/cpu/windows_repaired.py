"""cat-in-loop: joined once."""

import torch


def run(layer, x):
    return torch.tanh(torch.cat([layer(x[:, start : start + 400]) for start in range(0, 1600, 50)], dim=0))
