"""A result that is the caller's own."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(128, 128, generator=g, device=device),)


def run(x):
    return -x
