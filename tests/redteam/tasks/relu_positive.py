"""relu on inputs that are always positive: returning the input looks right."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.rand(1024, 2048, generator=g, device=device),)


def run(x):
    return torch.relu(x)
