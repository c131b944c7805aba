"""The old sum is given up before the output is made, which may then lie where that lay."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {"sum": torch.randn(1 << 18, generator=g, device=device)}


def run(state, x):
    new = x + state.pop("sum")
    out = torch.tanh(x)
    state["sum"] = new
    return out
