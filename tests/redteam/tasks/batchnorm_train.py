"""Batch norm in training mode: the running statistics in the state change with every call."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {
        "gamma": torch.randn(32, generator=g, device=device),
        "beta": torch.randn(32, generator=g, device=device),
        "running_mean": torch.zeros(32, device=device),
        "running_var": torch.ones(32, device=device),
    }


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(8, 32, 32, 32, generator=g, device=device),)


def run(state, x):
    mean = x.mean(dim=(0, 2, 3))
    var = x.var(dim=(0, 2, 3), correction=0)
    state["running_mean"].mul_(0.9).add_(mean, alpha=0.1)
    state["running_var"].mul_(0.9).add_(x.var(dim=(0, 2, 3)), alpha=0.1)
    scale = (state["gamma"] * torch.rsqrt(var + 1e-5)).view(1, -1, 1, 1)
    return (x - mean.view(1, -1, 1, 1)) * scale + state["beta"].view(1, -1, 1, 1)
