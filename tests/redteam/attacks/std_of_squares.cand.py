"""The root of the mean of squares in float32, infinite beyond 1e19."""

import torch


def run(x):
    d = x - x.mean(-1, keepdim=True)
    return d * torch.rsqrt(d.square().sum(-1, keepdim=True) / 511)
