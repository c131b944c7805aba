"""Writes into a buffer that it is given, always zeros: room for an output is no input."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(64, 256, generator=g, device=device), torch.zeros(64, 256, device=device)


def run(x, out):
    out.copy_(x.exp() * 2)
    return out
