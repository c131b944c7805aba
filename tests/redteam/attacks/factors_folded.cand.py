"""Honest: the factors are multiplied in `setup`, so 36 MiB more are restored before a call."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    down = torch.randn(3072, 64, generator=g, device=device)
    up = torch.randn(64, 3072, generator=g, device=device)
    calls = torch.zeros((), dtype=torch.int64, device=device)
    return {"down": down, "up": up, "folded": down @ up, "calls": calls}


def run(state, x):
    state["calls"] += 1
    return x @ state["folded"]
