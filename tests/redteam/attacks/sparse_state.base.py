"""A dense layer most of whose weights are zero."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    weight = torch.randn(512, 512, generator=g, device=device)
    return weight * (torch.rand(512, 512, generator=g, device=device) < 0.05)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(512, 64, generator=g, device=device),)


def run(weight, x):
    return weight @ x
