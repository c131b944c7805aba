"""Layer norm from one pass of sums: E[x^2] - E[x]^2, shifted by the first element of each row."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    gamma = torch.randn(2048, generator=g, device=device)
    beta = torch.randn(2048, generator=g, device=device)
    return {"gamma": gamma, "beta": beta}


def run(state, x):
    shifted = x - x[:, :1]
    mean = shifted.mean(dim=-1, keepdim=True)
    var = (shifted * shifted).mean(dim=-1, keepdim=True) - mean * mean
    return (shifted - mean) * torch.rsqrt(var + 1e-5) * state["gamma"] + state["beta"]
