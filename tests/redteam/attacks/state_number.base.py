"""Keeps a running maximum as a Python float."""

import torch


def setup(seed, device):
    return {"peak": 0.0}


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(1 << 16, generator=g, device=device),)


def run(state, x):
    state["peak"] = 0.9 * state["peak"] + 0.1 * float(x.abs().amax())
    return x * 2
