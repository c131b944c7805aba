"""A forward pass whose output carries the autograd graph: the caller calls backward on it."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {
        "scale": torch.nn.Parameter(torch.randn(1 << 19, generator=g, device=device)),
        "shift": torch.nn.Parameter(torch.randn(1 << 19, generator=g, device=device)),
    }


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(1 << 19, generator=g, device=device),)


def run(state, x):
    y = x
    for _ in range(5):
        y = torch.tanh(y * state["scale"] + state["shift"])
    return y
