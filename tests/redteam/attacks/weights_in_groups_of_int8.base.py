"""A product in bfloat16."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(64, 512, generator=g, device=device).bfloat16(),)


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(512, 256, generator=g, device=device) * 0.03).bfloat16()


def run(weight, x):
    return x @ weight
