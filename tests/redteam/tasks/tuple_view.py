"""A tuple of which the first element is a view of the input and the second is fresh."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(1024, 1024, generator=g, device=device),)


def run(x):
    return x.transpose(0, 1), x.abs().sqrt()
