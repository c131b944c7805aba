"""Scores with a bias, one row after the other; counts its calls."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {
        "bias": torch.randn(1024, generator=g, device=device),
        "calls": torch.zeros((), dtype=torch.int64, device=device),
    }


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(1024, 1024, generator=g, device=device),)


def run(state, x):
    state["calls"] += 1
    return torch.stack([row * 2 + state["bias"] for row in x])
