"""Scores with a distance bias; the bias is returned as well, fresh in every call."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(1024, 1024, generator=g, device=device),)


def run(x):
    at = torch.arange(x.shape[0], device=x.device)
    bias = (at[:, None] - at[None, :]).abs().to(x.dtype) * -0.125
    return x + bias, bias
