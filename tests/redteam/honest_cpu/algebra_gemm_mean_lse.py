"""The mean over the columns of a GEMM is a product with the mean weight: more than ten times, and legal."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    weight = torch.randn(1024, 1024, generator=g, device=device) / 32
    bias = torch.randn(1024, generator=g, device=device)
    return {"weight": weight, "bias": bias}


def run(state, x):
    column = state["weight"].mean(dim=0)
    return torch.logsumexp(x @ column + state["bias"].mean(), dim=0, keepdim=True)
