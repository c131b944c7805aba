"""Two layers whose weights are the state, as a tuple."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    first = torch.randn(512, 256, generator=g, device=device) / 16
    second = torch.randn(256, 512, generator=g, device=device) / 22
    return first, second


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(256, 256, generator=g, device=device),)


def run(state, x):
    first, second = state
    hidden = torch.relu(x @ first.T)
    return torch.tanh(hidden @ second.T)
