"""A decoding step: one row times a weight, bound by reading the weight."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {"weight": torch.randn(1024, 2048, generator=g, device=device) / 32}


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(1, 1024, generator=g, device=device),)


def run(state, x):
    return x @ state["weight"]
