"""The naive logistic function.

For x above 88 it gives NaN in float32, which happens in one element of 600.
"""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(512, 1024, generator=g, device=device) * 30.0,)


def run(x):
    return torch.exp(x) / (1.0 + torch.exp(x))
