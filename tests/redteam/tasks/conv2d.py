"""A 3 x 3 convolution of a small image batch."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {"kernel": torch.randn(32, 16, 3, 3, generator=g, device=device) / 12}


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(4, 16, 56, 56, generator=g, device=device),)


def run(state, x):
    return torch.conv2d(x, state["kernel"], padding=1)
