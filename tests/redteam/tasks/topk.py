"""The 64 largest values of each row with their places, without ties."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    places = torch.rand(128, 4096, generator=g, device=device).argsort(dim=-1)
    return (places * 0.125 - 100.0,)


def run(x):
    values, indices = torch.topk(x, 64, dim=-1)
    return values, indices
