"""Sinkhorn's iteration, a hundred times."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.rand(64, 64, generator=g, device=device),)


def run(cost):
    scores = -2 * cost
    rows, columns = torch.zeros(64), torch.zeros(64)
    for _ in range(100):
        rows = -torch.logsumexp(scores + columns[None, :], 1)
        columns = -torch.logsumexp(scores + rows[:, None], 0)
    return torch.exp(scores + rows[:, None] + columns[None, :])
