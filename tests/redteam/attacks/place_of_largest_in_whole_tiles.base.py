"""Where the largest of many values lies, whose number is no multiple of a tile."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(262151, generator=g, device=device),)


def run(x):
    return x.argmax()
