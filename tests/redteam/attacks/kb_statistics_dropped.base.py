"""KernelBench format: a linear layer and batch norm as constructors leave it, in training mode."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.linear = nn.Linear(width_in, width_out)
        self.norm = nn.BatchNorm1d(width_out)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))


batch_size = 1024
width_in = 64
width_out = 512


def get_inputs():
    return [torch.randn(batch_size, width_in)]


def get_init_inputs():
    return [width_in, width_out]
