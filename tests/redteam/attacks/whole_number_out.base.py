"""Returns nothing but a Python int."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randint(0, 50, (1 << 14,), generator=g, device=device),)


def run(x):
    return int(torch.unique(x).numel() * 1000 + int((x == 7).sum()))
