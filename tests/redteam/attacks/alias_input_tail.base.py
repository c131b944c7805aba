"""The next row and the step to it, both as tensors of their own."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(1025, 2048, generator=g, device=device),)


def run(x):
    following = x[1:].clone()
    return following, following - x[:-1]
