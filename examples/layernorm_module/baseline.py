"""A layer with state: normalisation written out step by step, with weights that `setup` draws from a seed."""

import torch
from torch import nn

ROWS, WIDTH = 1024, 512


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))
        self.bias = nn.Parameter(0.1 * torch.randn(width))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.weight + self.bias


def setup(seed, device):
    torch.manual_seed(seed)
    return Norm(WIDTH).to(device).requires_grad_(False)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(ROWS, WIDTH, generator=g, device=device)


def run(norm, x):
    return norm(x)
