"""ReLU over 8192 by 8192 inputs that happen to be positive, so that doing nothing gives the right values."""

import torch


def inputs(seed, device):
    n = 8192 if str(device).startswith("cuda") else 64
    g = torch.Generator(device).manual_seed(seed)
    return (torch.rand(n, n, generator=g, device=device),)


def run(x):
    return torch.relu(x)
