"""How often one bfloat16 score beats another: a float32 number made of exact comparisons."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return tuple(torch.randn(1 << 19, generator=g, device=device).bfloat16() for _ in range(2))


def run(chosen, rejected):
    return (chosen > rejected).float().mean()
