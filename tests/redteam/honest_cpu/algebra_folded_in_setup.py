"""The same algebra with the mean weight made once, in the set-up, from the weights of the given seed."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    weight = torch.randn(1024, 1024, generator=g, device=device) / 32
    bias = torch.randn(1024, generator=g, device=device)
    return weight.mean(dim=0), bias.mean()


def run(state, x):
    column, offset = state
    return torch.logsumexp(x @ column + offset, dim=0, keepdim=True)
