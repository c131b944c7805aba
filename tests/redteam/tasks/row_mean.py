"""Mean of long rows of normals: the true answers are close to zero, but not zero."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(16, 262144, generator=g, device=device),)


def run(x):
    return x.mean(dim=-1)
