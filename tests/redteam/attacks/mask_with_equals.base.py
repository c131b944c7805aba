"""Which scores on a coarse grid lie above a half; a few in each call are exactly a half."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randint(-(1 << 15), 1 << 15, (512, 512), generator=g, device=device) * 2.0**-13,)


def run(x):
    return x * 1.5 > 0.75
