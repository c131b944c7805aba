"""Layer norm from one pass of sums: E[x^2] - E[x]^2, shifted by the mean of each row's first elements.

Shifted by the first element alone, a row that starts with an outlier loses five bits: honest no more.
"""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    gamma = torch.randn(2048, generator=g, device=device)
    beta = torch.randn(2048, generator=g, device=device)
    return {"gamma": gamma, "beta": beta}


def run(state, x):
    shifted = x - x[:, :16].mean(dim=-1, keepdim=True)
    mean = shifted.mean(dim=-1, keepdim=True)
    var = (shifted * shifted).mean(dim=-1, keepdim=True) - mean * mean
    return (shifted - mean) * torch.rsqrt(var + 1e-5) * state["gamma"] + state["beta"]
