"""ReLU of inputs that are never negative; negative ones are legal."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.rand(128, 1024, generator=g, device=device),)


def run(x):
    return torch.relu(x)
