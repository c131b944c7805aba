"""Row norms that neither overflow nor underflow: scaled by the largest element, as BLAS' nrm2 does."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(1024, 1024, generator=g, device=device),)


def run(x):
    top = x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-38)
    return (x / top).square().sum(dim=-1).sqrt() * top.squeeze(-1)
