"""A tall reduction: 64 x 32768 by 32768 x 64, uniform inputs."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.rand(64, 32768, generator=g, device=device), torch.rand(
        32768, 64, generator=g, device=device
    )


def run(a, b):
    return a @ b
