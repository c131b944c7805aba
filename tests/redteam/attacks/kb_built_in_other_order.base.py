"""KernelBench format: two layers with batch norm between them, in training mode."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, 2 * width)
        self.norm = nn.BatchNorm1d(2 * width)
        self.second = nn.Linear(2 * width, width)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


batch_size = 1024
width = 128


def get_inputs():
    return [torch.randn(batch_size, width)]


def get_init_inputs():
    return [width]
