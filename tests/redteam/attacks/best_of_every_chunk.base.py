"""The eight largest of many scores."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(4, 65536, generator=g, device=device),)


def run(x):
    values, places = torch.topk(x, 8, dim=-1)
    return values, places
