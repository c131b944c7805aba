"""Rows divided by their standard deviation, which torch computes in doubles inside."""

import torch


def inputs(seed, device):
    return (torch.randn(64, 512, generator=torch.Generator(device).manual_seed(seed), device=device),)


def run(x):
    return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
