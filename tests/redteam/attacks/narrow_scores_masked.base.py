"""Which scores, computed in bfloat16, are above a threshold; and how many."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(64, 96, generator=g, device=device).bfloat16()


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(512, 64, generator=g, device=device)


def run(weights, x):
    chosen = x.bfloat16() @ weights > 4
    return chosen, chosen.sum(), (x.bfloat16() * 40).round().to(torch.int32)
