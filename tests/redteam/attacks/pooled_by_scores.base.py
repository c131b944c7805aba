"""The ten nodes with the largest scores, each times its own, as pooling of graphs does."""

import torch


def setup(seed, device):
    return torch.randn(16, generator=torch.Generator(device).manual_seed(seed), device=device) / 4


def inputs(seed, device):
    return (torch.randn(8, 40, 16, generator=torch.Generator(device).manual_seed(seed), device=device),)


def run(w, x):
    s = torch.tanh(x @ w)
    v, i = s.topk(10, 1)
    return torch.stack([rows[at] * by[:, None] for rows, at, by in zip(x, i, v, strict=True)])
