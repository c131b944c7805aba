"""A right softmax in three eager steps: several times the memory traffic."""

import torch


def run(x):
    shifted = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return shifted / shifted.sum(dim=-1, keepdim=True)
