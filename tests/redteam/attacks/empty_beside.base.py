"""A result, and beside it what may be asked for and was not."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(256, 256, generator=g, device=device),)


def run(x):
    return {"y": torch.relu(x), "hidden": [], "more": {}}
