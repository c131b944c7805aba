"""Unmasked attention with weak scores, so that the weights are nearly uniform."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    q = torch.randn(2, 512, 64, generator=g, device=device) * 0.1
    k = torch.randn(2, 512, 64, generator=g, device=device) * 0.1
    v = torch.randn(2, 512, 64, generator=g, device=device) * 0.05
    return q, k, v


def run(q, k, v):
    weights = torch.softmax(q @ k.mT / 8.0, dim=-1)
    return weights @ v
