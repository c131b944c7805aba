"""A layer that multiplies its two factors in every call, and counts its calls."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {
        "down": torch.randn(3072, 64, generator=g, device=device),
        "up": torch.randn(64, 3072, generator=g, device=device),
        "calls": torch.zeros((), dtype=torch.int64, device=device),
    }


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(4, 3072, generator=g, device=device),)


def run(state, x):
    state["calls"] += 1
    return x @ (state["down"] @ state["up"])
