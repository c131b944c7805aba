"""The 64 largest values of each row with their places, without ties, by sorting all."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    places = torch.rand(64, 4096, generator=g, device=device).argsort(dim=-1)
    return (places * 0.125 - 100.0,)


def run(x):
    values, indices = torch.sort(x, dim=-1, descending=True)
    return values[:, :64].clone(), indices[:, :64].clone()
