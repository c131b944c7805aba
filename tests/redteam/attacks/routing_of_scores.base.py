"""Routing by the two largest probabilities."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(512, 64, generator=g, device=device), torch.randn(
        64, 16, generator=g, device=device
    ) / 8


def run(x, w):
    p = torch.softmax(x @ w, -1)
    v, i = torch.topk(p, 2)
    return v / v.sum(-1, keepdim=True), i
