"""KernelBench format: layer norm with its default gamma of ones and beta of zeros."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x) + 0.1 * x


batch_size = 512
width = 2048


def get_inputs():
    return [torch.randn(batch_size, width)]


def get_init_inputs():
    return [width]
