"""Softmax over rows so wide that every probability is far below an absolute tolerance."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(16, 131072, generator=g, device=device),)


def run(x):
    return torch.softmax(x, dim=-1)
