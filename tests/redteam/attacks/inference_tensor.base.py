"""Some small steps; the result may be used in anything that follows."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(32, 32, generator=g, device=device),)


def run(x):
    for _ in range(4):
        x = x.sin().add(x)
    return x
