"""Attention over scores of which some are masked."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    scores = 3 * torch.randn(4, 64, 64, generator=g, device=device)
    masked = torch.rand(4, 64, 64, generator=g, device=device) < 0.2
    masked[..., 0] = False
    values = torch.randn(4, 64, 32, generator=g, device=device)
    return scores.masked_fill(masked, float("-inf")), values


def run(scores, values):
    return torch.softmax(scores, -1) @ values
