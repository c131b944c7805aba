"""Dropout whose mask is drawn from a generator seeded by an input: a function of its inputs."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(512, 1024, generator=g, device=device)
    return x, torch.randint(0, 2**31, (1,), generator=g, device=device)


def run(x, mask_seed):
    g = torch.Generator(x.device).manual_seed(int(mask_seed))
    keep = torch.rand(x.shape, generator=g, device=x.device) >= 0.1
    return x * keep / 0.9
