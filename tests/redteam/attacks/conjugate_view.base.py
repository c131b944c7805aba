"""A conjugate, written out."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(64, 64, generator=g, device=device, dtype=torch.complex64),)


def run(x):
    return torch.conj_physical(x @ x)
