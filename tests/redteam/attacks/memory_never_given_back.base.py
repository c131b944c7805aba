"""Large results, each of which the system has to find memory for."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(64, 64, generator=g, device=device),)


def run(x):
    return -x
