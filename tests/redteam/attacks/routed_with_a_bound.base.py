"""Rows through their two best experts, by probabilities that are made to add up to one."""

import torch
from torch.nn import functional as F


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(16, 8, generator=g, device=device) / 4, torch.randn(
        8, 16, 16, generator=g, device=device
    ) / 4


def inputs(seed, device):
    return (torch.randn(256, 16, generator=torch.Generator(device).manual_seed(seed), device=device),)


def run(state, x):
    router, experts = state
    v, i = torch.softmax(x @ router, 1).topk(2, 1)
    weights = (F.one_hot(i, 8).to(x.dtype) * (v / v.sum(1, keepdim=True))[..., None]).sum(1)
    return torch.einsum("te,td,edf->tf", weights, x, experts)
