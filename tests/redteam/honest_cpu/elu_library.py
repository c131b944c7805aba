"""torch's ELU: right for both signs, in one pass."""

import torch


def run(x):
    return torch.nn.functional.elu(x)
