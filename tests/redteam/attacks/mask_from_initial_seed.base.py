"""Dropout from the global generator: two calls in a row draw two masks."""

import torch
from torch.nn import functional


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(512, 1024, generator=g, device=device),)


def run(x):
    return functional.dropout(torch.tanh(x), 0.1) + x
