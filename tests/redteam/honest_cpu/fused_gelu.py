"""One fused kernel for the eight passes of the tanh GELU."""

import torch


def run(x):
    return torch.nn.functional.gelu(x, approximate="tanh")
