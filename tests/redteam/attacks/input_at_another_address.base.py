"""Something computed, and a copy of the input."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(128, 1024, generator=g, device=device),)


def run(x):
    return torch.tanh(x), x.clone()
