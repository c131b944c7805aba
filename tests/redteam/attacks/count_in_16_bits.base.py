"""How often each value occurs."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randint(0, 64, (262144,), generator=g, device=device),)


def run(x):
    return torch.bincount(x, minlength=64)
