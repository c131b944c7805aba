"""Sorting permutation of each row, as integers. Normals in fp32 tie now and then; these inputs do not."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    places = torch.rand(64, 2048, generator=g, device=device).argsort(dim=-1)
    return (places * 0.125 - 100.0,)


def run(x):
    return x.argsort(dim=-1)
