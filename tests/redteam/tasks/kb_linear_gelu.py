"""KernelBench format: linear layer, tanh GELU, scaling."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width_in, width_out, scale):
        super().__init__()
        self.linear = nn.Linear(width_in, width_out)
        self.scale = scale

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x), approximate="tanh") * self.scale


batch_size = 128
width_in = 512
width_out = 1024


def get_inputs():
    return [torch.randn(batch_size, width_in)]


def get_init_inputs():
    return [width_in, width_out, 0.5]
