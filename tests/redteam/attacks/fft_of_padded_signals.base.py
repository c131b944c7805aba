"""A filter over signals that are padded to one length: exact zeros where nothing is."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(8, 1, 4096, generator=g, device=device)
    x[:, :, 2048:] = 0
    return x, torch.randn(1, 1, 257, generator=g, device=device)


def run(x, k):
    return torch.nn.functional.conv1d(x, k)
