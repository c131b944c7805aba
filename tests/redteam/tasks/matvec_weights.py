"""A decoding step in small: one row times a 4096 x 4096 weight, bound by memory."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {"weight": torch.randn(4096, 4096, generator=g, device=device) / 64}


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(1, 4096, generator=g, device=device),)


def run(state, x):
    return x @ state["weight"]
