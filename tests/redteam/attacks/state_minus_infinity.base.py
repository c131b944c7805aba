"""Keeps the largest values seen, in a table whose last row is padding and stays at minus infinity."""

import torch


def setup(seed, device):
    best = torch.zeros(256, 128, device=device)
    best[-1] = -torch.inf
    return {"best": best}


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(255, 128, generator=g, device=device),)


def run(state, x):
    state["best"][:-1] = torch.maximum(state["best"][:-1], torch.exp(x))
    return x.sum(dim=1)
