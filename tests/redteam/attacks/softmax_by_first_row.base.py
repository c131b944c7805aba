"""Softmax by hand, safe for any values."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(64, 512, generator=g, device=device),)


def run(x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)
