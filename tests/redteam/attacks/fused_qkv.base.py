"""Three projections of the same rows, each by a product of its own."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {name: torch.randn(256, 256, generator=g, device=device) / 16 for name in ("q", "k", "v")}


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(64, 256, generator=g, device=device),)


def run(state, x):
    return x @ state["q"], x @ state["k"], x @ state["v"]
